// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"fmt"
	"io"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ChangeView is `localhost enable` and `localhost disable` with --output json: one a line.
type ChangeView struct {
	Registry string           `json:"registry"`
	Position ownhost.Position `json:"position"` // afterwards
	File     string           `json:"file"`
	// Content is the file afterwards, without what may be a secret; null: there is none.
	Content *string  `json:"content"`
	Changed bool     `json:"changed"` // afterwards it is another one than before
	Written bool     `json:"written"`
	Notes   []string `json:"notes"` // for people
}

// View is a change for programs.
func (c Change) View(written bool) ChangeView {
	v := ChangeView{
		Registry: c.Registry, Position: c.Position, File: c.File, Changed: !c.IsNone(), Written: written && !c.IsNone(),
		Notes: append([]string{}, c.Notes...),
	}
	if c.After != nil {
		v.Content = new(string(masked(c.After)))
	}
	return v
}

// Print writes a change for people: the difference of the file, or, where it was written, its name. What they have to
// know beside it goes to said.
func (c Change) Print(out, said io.Writer, written bool) {
	switch {
	case c.IsNone():
		fmt.Fprintf(out, "%s: nothing to do\n", c.Registry)
	case written && c.Position == ownhost.Off:
		fmt.Fprintf(out, "%s: off: %s\n", c.Registry, c.File)
	case written:
		fmt.Fprintf(out, "%s: %s: %s\n", c.Registry, c.Position, c.File)
		fmt.Fprintln(said, "next: systemctl enable --now image-update-agent-localhost.socket; image-update-agent doctor")
	default:
		shown := manifests.Diff(c.File, c.File+" (afterwards)", masked(c.Before), masked(c.After))
		if shown == "" {
			shown = c.File + ": only what is not shown changes\n"
		}
		fmt.Fprint(out, shown)
		fmt.Fprintln(said, "nothing is written without --write")
	}
	for _, note := range c.Notes {
		fmt.Fprintf(said, "note: %s\n", note)
	}
}
