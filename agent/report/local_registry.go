// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// localRegistryLost returns the reasons of a node whose local registry is enabled but not asked: its pods need the
// registry, or start releases without an approval.
func localRegistryLost(own *localregistry.Status) []status.Reason {
	if own == nil {
		return nil
	}
	var out []status.Reason
	for _, l := range own.Lost {
		out = append(out, status.Reason{
			Kind: status.KindLocalRegistry, Host: l.Registry,
			Text: fmt.Sprintf("local registry: enabled for %s as %s, but %s", l.Registry, l.Wanted, l.Reason),
		})
	}
	if own.WantedError != "" {
		out = append(out, status.Reason{
			Kind: status.KindLocalRegistry,
			Text: "local registry: cannot tell which registries it was enabled for: " + own.WantedError,
		})
	}
	return out
}
