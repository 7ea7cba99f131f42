// SPDX-License-Identifier: Apache-2.0

package quorum

import "github.com/kubic-project/image-update-agent/agent/node"

// Read returns the URLs of the etcds and API servers in pod manifests.
func (c Control) Read(files ...node.PodFile) (urls []string, errs []error) {
	etcds, servers, errs := c.read(find(files))
	for _, e := range etcds {
		urls = append(urls, e.urls...)
	}
	for _, s := range servers {
		urls = append(urls, s.at)
	}
	return urls, errs
}
