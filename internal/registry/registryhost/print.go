// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"fmt"
	"io"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ChangeView is the output of `local-registry enable` and `local-registry disable` with --output json, one per line.
type ChangeView struct {
	Registry string                 `json:"registry"`
	Position localregistry.Position `json:"position"` // afterwards
	File     string                 `json:"file"`
	// Content is the file afterwards, without possible secrets; null if there is none.
	Content *string  `json:"content"`
	Diff    string   `json:"diff"`    // of the file, without possible secrets
	Changed bool     `json:"changed"` // differs from before
	Written bool     `json:"written"`
	Notes   []string `json:"notes"` // for people
}

// View returns a change for programs.
func (c Change) View(written bool) ChangeView {
	v := ChangeView{
		Registry: c.Registry, Position: c.Position, File: c.File, Changed: !c.IsNone(), Written: written && !c.IsNone(),
		Diff: c.diff(), Notes: append([]string{}, c.Notes...),
	}
	if c.After != nil {
		v.Content = new(string(masked(c.After)))
	}
	return v
}

func (c Change) diff() string {
	return manifests.Diff(c.File, c.File+" (afterwards)", masked(c.Before), masked(c.After))
}

// Print writes a change for people to out: the diff of the file, or its name if it was written. Notes go to said.
func (c Change) Print(out, said io.Writer, written bool) {
	switch {
	case c.IsNone():
		fmt.Fprintf(out, "%s: nothing to do\n", c.Registry)
	case written && c.Position == localregistry.Off:
		fmt.Fprintf(out, "%s: disabled in %s\n", c.Registry, c.File)
	case written:
		fmt.Fprintf(out, "%s: enabled as %s in %s\n", c.Registry, c.Position, c.File)
		fmt.Fprintln(said, "next: run systemctl enable --now image-update-agent-local-registry.socket, then "+
			"image-update-agent doctor")
	default:
		shown := c.diff()
		if shown == "" {
			shown = c.File + ": only hidden values change\n"
		}
		fmt.Fprint(out, shown)
		fmt.Fprintln(said, "not written; add --write to write it")
	}
	for _, note := range c.Notes {
		fmt.Fprintf(said, "note: %s\n", note)
	}
}
