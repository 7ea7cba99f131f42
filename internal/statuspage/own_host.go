// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// ownHostLines are the registries with the node's own host, a line for each.
func (p *page) ownHostLines() (lines []string) {
	own := p.s.OwnHost
	if own == nil {
		return nil
	}
	for _, r := range own.Registries {
		line := string(r.Position) + ": "
		switch tags := terminal.Plural(len(r.Tags), "tag") + " on " + r.Registry; {
		case own.Down != "":
			line += "not ready for " + tags
		case r.Position == ownhost.Gate:
			line += "container starts take what was approved, for " + tags
		default:
			line += "ready for " + tags
		}
		if r.LastServed != nil {
			line += "; started from the node at " + p.Past(*r.LastServed)
		}
		if r.AwaySince != nil {
			line += "; registry away, its last answer was at " + p.Past(*r.AwaySince)
		}
		if len(r.Unanswered) > 0 {
			line += "; " + terminal.Plural(len(r.Unanswered), "tag") + " not answered"
		}
		lines = append(lines, line)
	}
	for _, l := range own.Lost {
		lines = append(lines, "lost: "+string(l.Wanted)+" on "+l.Registry+": "+terminal.OneLine(l.Reason))
	}
	if own.WantedError != "" {
		lines = append(lines, "not known for which registries it was enabled: "+terminal.OneLine(own.WantedError))
	}
	if own.Down != "" {
		lines = append(lines, "does not answer, so container starts need the registry: "+terminal.OneLine(own.Down))
	}
	if own.Error != "" {
		lines = append(lines, "not up to date: "+terminal.OneLine(own.Error))
	}
	return lines
}

// ownHostLeft lists the followed tags that the own host does not answer.
func (p *page) ownHostLeft() {
	if p.s.OwnHost == nil {
		return
	}
	begin := p.Section("Not answered by the node's own host:")
	for _, r := range p.s.OwnHost.Registries {
		for _, left := range r.Unanswered {
			begin()
			p.Item("  "+status.LastPart(left.Image)+":"+left.Tag+": ", terminal.OneLine(left.Reason))
		}
	}
}
