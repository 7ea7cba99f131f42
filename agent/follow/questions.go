// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Running is what each question's images run, where a digest is known of them: two
// containers of one tag may have started before and after it moved.
func Running(inv node.Inventory, views []PodView) map[release.Question][]digest.Digest {
	var names []string
	for _, v := range views {
		if v.Err == nil {
			names = append(names, v.Pod.Name)
		}
	}
	out := map[release.Question][]digest.Digest{}
	for _, v := range views {
		if v.Err != nil {
			continue
		}
		containers := inv.PodContainers(v.Pod.Namespace, v.Pod.Name, names)
		for _, w := range v.Wants {
			if c := node.FindContainer(containers, w.Image.Container); c != nil && node.IsContainer(w.Image) && c.Image != "" {
				out[w.Ask] = append(out[w.Ask], node.DigestOf(c, inv.Held))
			}
		}
	}
	return out
}
