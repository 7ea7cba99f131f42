// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// History writes what became of the last applies and rollbacks, the newest first.
func History(p *terminal.Page, entries []status.HistoryEntry) error {
	if len(entries) == 0 {
		p.Line("No updates or rollbacks yet.")
		return p.Flush()
	}
	for _, e := range entries {
		of := e.PodManifest
		if e.Container != "" {
			of += " " + e.Container
		}
		p.Item("", p.Past(e.At)+": "+string(e.Result)+": "+of)
		switch {
		case e.Container != "":
			p.Item("    release  ", cmp.Or(e.From, "?")+" -> "+e.To)
		case e.Change != "":
			p.Item("    change   ", e.Change)
		}
		p.Item("    by       ", e.By.String())
		if e.Reason != "" {
			p.Item("    reason   ", e.Reason)
		}
	}
	return p.Flush()
}
