// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ownHostLost are the reasons of a node whose own host is wanted and not asked: its pods need the registry, or start
// what no person approved.
func ownHostLost(own *ownhost.Status) []status.Reason {
	if own == nil {
		return nil
	}
	var out []status.Reason
	for _, l := range own.Lost {
		out = append(out, status.Reason{
			Kind: status.KindOwnHost, Host: l.Registry,
			Text: fmt.Sprintf("own host: it was enabled for %s as %s: %s", l.Registry, l.Wanted, l.Reason),
		})
	}
	if own.WantedError != "" {
		out = append(out, status.Reason{
			Kind: status.KindOwnHost, Text: "own host: for which registries it was enabled is not known: " + own.WantedError,
		})
	}
	return out
}
