// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// catalogLine is the verified catalog in one sentence.
func (p *page) catalogLine(c catalog.Status) string {
	if c.Version == 0 {
		return c.Catalog + ": no version was verified yet" + because(c.Error)
	}
	line := fmt.Sprintf("%s version %d", c.Catalog, c.Version)
	switch {
	case c.Expired:
		line += ", expired at " + p.Past(*c.Expires)
	case c.Expires != nil:
		line += ", expires at " + p.Next(*c.Expires)
	}
	bound := 0
	for _, i := range p.s.Images {
		if i.Bound {
			bound++
		}
	}
	if bound > 0 {
		line += "; " + terminal.Plural(bound, "container") + " bound to its digests"
	}
	return line + because(c.Error)
}

func because(err string) string {
	if err == "" {
		return ""
	}
	return "; no newer version: " + terminal.OneLine(err)
}

// withdrawn lists the releases that run although the catalog has withdrawn them.
func (p *page) withdrawn() {
	begin := p.Section("Running but withdrawn:")
	for _, i := range p.s.Images {
		w := i.Withdrawn
		if w == nil {
			continue
		}
		begin()
		release := imageName(i)
		if i.Running != nil {
			release += " " + name(i.Running)
		}
		p.Item("  "+fileOf(i)+": ", release+": "+terminal.OneLine(w.Reason))
		switch {
		case i.Offered != nil:
			p.Item("    instead  ", name(i.Offered)+" is offered")
		case w.To != "":
			p.Item("    instead  ", terminal.OneLine(w.To)+
				" is not offered to this node (a lower release needs catalog.allowLower)")
		}
	}
}
