// SPDX-License-Identifier: Apache-2.0

package quorum

import "github.com/kubic-project/image-update-agent/agent/node"

// The parsers.
var ParseKubeconfig = parseKubeconfig

// Read returns where the etcds and API servers of pod manifests are asked.
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
