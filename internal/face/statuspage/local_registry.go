// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// localRegistryLines are the registries with the node's local registry, a line for each.
func (p *page) localRegistryLines() (lines []string) {
	own := p.s.LocalRegistry
	if own == nil {
		return nil
	}
	for _, r := range own.Registries {
		line := string(r.Position) + ": "
		switch tags := terminal.Plural(len(r.Tags), "tag") + " on " + r.Registry; {
		case own.Down != "":
			line += "not ready for " + tags
		case r.Position == localregistry.Gate:
			line += "containers start the approved digests of " + tags
		default:
			line += "ready for " + tags
		}
		if r.LastServed != nil {
			line += "; last used at " + p.Past(*r.LastServed)
		}
		if r.AwaySince != nil {
			line += "; registry does not answer, last answer at " + p.Past(*r.AwaySince)
		}
		if len(r.Unanswered) > 0 {
			line += "; " + terminal.Plural(len(r.Unanswered), "tag") + " not served"
		}
		lines = append(lines, line)
	}
	for _, l := range own.Lost {
		lines = append(lines, "lost: "+string(l.Wanted)+" on "+l.Registry+": "+terminal.OneLine(l.Reason))
	}
	if own.WantedError != "" {
		lines = append(lines, "cannot tell which registries it was enabled for: "+terminal.OneLine(own.WantedError))
	}
	if own.Down != "" {
		lines = append(lines, "does not answer, so containers need the registry to start: "+terminal.OneLine(own.Down))
	}
	if own.Error != "" {
		lines = append(lines, "not up to date: "+terminal.OneLine(own.Error))
	}
	return lines
}

// localRegistryLeft lists the followed tags that the local registry does not answer.
func (p *page) localRegistryLeft() {
	if p.s.LocalRegistry == nil {
		return
	}
	begin := p.Section("Not served by the local registry:")
	for _, r := range p.s.LocalRegistry.Registries {
		for _, left := range r.Unanswered {
			begin()
			p.Item("  "+status.LastPart(left.Image)+":"+left.Tag+": ", terminal.OneLine(left.Reason))
		}
	}
}
