// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// Lock writes the lock of the fleet as `lock show` does.
func Lock(to *terminal.Page, l fleet.LockStatus) error {
	p := &page{Page: to}
	p.Item(labelled("Lock:"), p.lockLine(l))
	if l.Lease != "" {
		p.Item(labelled("Lease:"), l.Lease+", for "+podsOf(l.Pods))
	} else {
		p.Item(labelled("Server:"), terminal.OneLine(l.Server))
		p.Item(labelled("Group:"), l.Group+", for "+podsOf(l.Pods))
	}
	p.Item(labelled("This node:"), l.ID)
	if len(l.Holders) > 0 { // another node
		p.Item(labelled("If gone:"), cmp.Or(l.FreeCommand(), "release its lock on the server"))
	}
	return p.Flush()
}

func podsOf(pods string) string {
	if pods == "all" {
		return "all pods"
	}
	return "etcd and kube-apiserver"
}

// lockLine is the lock in one sentence.
func (p *page) lockLine(l fleet.LockStatus) string {
	if l.State == fleet.LockFree {
		return "not needed: no apply is running"
	}
	line := string(l.State) + " since " + p.Past(l.Since)
	if len(l.PodManifests) > 0 {
		line += " for " + strings.Join(l.PodManifests, ", ")
	}
	if l.Kept {
		line += "; kept because a pod did not become healthy: the fleet waits"
	}
	if l.Error != "" { // it names the holders
		line += ": " + terminal.OneLine(l.Error)
	}
	if l.State == fleet.LockRefused {
		line += "; the next apply asks again: image-update-agent apply"
	}
	if !l.RetryAt.IsZero() {
		line += "; next try at " + p.Next(l.RetryAt)
	}
	if l.Warning != "" {
		line += "; warning: " + terminal.OneLine(l.Warning)
	}
	return line
}
