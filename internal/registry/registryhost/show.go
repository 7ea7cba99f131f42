// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// View is the output of `local-registry show --output json`.
type View struct {
	Address string `json:"address"`
	Table   string `json:"table"` // the path of the table
	// TableError is why the local registry answers nothing; empty if it answers from the entries.
	TableError string `json:"tableError,omitempty"`
	// Registries have the local registry, have lost it, or are in the table.
	Registries []RegistryView `json:"registries"`
	// Lost are the registries that no longer have the local registry at its position.
	Lost []localregistry.LostRegistry `json:"lost"`
	// WantedError is why the enabled registries are unknown; empty if they are known.
	WantedError string `json:"wantedError,omitempty"`
}

// RegistryView is one registry.
type RegistryView struct {
	Registration
	Entries []localregistry.Entry `json:"entries"`
}

// Show returns the registries that have the local registry or have lost it, and its answers for them; with names, only
// these.
func (m Memory) Show(ctx context.Context, table string, names ...string) (View, error) {
	v := View{
		Address: localregistry.Address, Table: table, Registries: []RegistryView{}, Lost: []localregistry.LostRegistry{},
	}
	t, err := ReadTable(table)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.TableError = "the daemon has not written it yet"
	case err != nil:
		v.TableError = err.Error()
	}
	lost, unknown := localregistry.Lost(m, func(registry string) localregistry.Position { return m.usable(ctx, registry) })
	v.WantedError = unknown
	for _, one := range lost {
		if len(names) == 0 || slices.Contains(names, one.Registry) {
			v.Lost = append(v.Lost, one)
		}
	}
	found, err := m.registrations(ctx, t, v.Lost, names)
	if err != nil {
		return View{}, err
	}
	for _, one := range found {
		isOther := func(e localregistry.Entry) bool { return e.Registry != one.Registry }
		entries := slices.DeleteFunc(slices.Clone(t.Entries), isOther)
		v.Registries = append(v.Registries, RegistryView{one, append([]localregistry.Entry{}, entries...)})
	}
	return v, nil
}

// usable returns the local registry's position among the hosts of a registry; Off if containerd cannot use its
// hosts.toml.
func (m Memory) usable(ctx context.Context, registry string) localregistry.Position {
	found, _ := m.Registries.Of(ctx, registry)
	return found.Position
}

func (m Memory) registrations(
	ctx context.Context, t localregistry.Table, lost []localregistry.LostRegistry, names []string,
) ([]Registration, error) {
	var found []Registration
	for _, name := range names {
		one, err := m.Registries.Of(ctx, name)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	if len(names) > 0 {
		return found, nil
	}
	found, err := m.Registries.Enabled(ctx)
	if err != nil {
		return nil, err
	}
	add := func(registry string) {
		if !slices.ContainsFunc(found, func(one Registration) bool { return one.Registry == registry }) {
			found = append(found, Registration{Registry: registry})
		}
	}
	for _, e := range t.Entries {
		add(e.Registry)
	}
	for _, l := range lost {
		add(l.Registry)
	}
	slices.SortFunc(found, func(a, b Registration) int { return strings.Compare(a.Registry, b.Registry) })
	return found, nil
}

// IsOff reports whether no registry of the view has the local registry.
func (v View) IsOff() bool {
	return !slices.ContainsFunc(v.Registries, func(r RegistryView) bool { return r.Position != localregistry.Off })
}

// Write writes the view for people.
func (v View) Write(p *terminal.Page) error {
	if len(v.Registries) == 0 {
		p.Line("the local registry is not enabled for any registry")
	}
	if v.WantedError != "" {
		p.Item("cannot tell which registries it was enabled for: ", v.WantedError)
	}
	for _, r := range v.Registries {
		p.Line(r.Registry + ": " + r.sentence())
		if r.File != "" {
			p.Item("  file  ", r.File)
		}
		for _, l := range v.Lost {
			if l.Registry == r.Registry {
				p.Item("  lost  ", "enabled as "+string(l.Wanted)+": "+l.Reason)
				if r.Error != "" {
					continue // enable and disable would refuse
				}
				p.Item("        ", Remedy(localregistry.Wanted{Registry: l.Registry, Position: l.Wanted}))
			}
		}
		var rows [][]string
		for _, e := range r.Entries {
			rows = append(rows, []string{"  " + e.Repository + ":" + e.Tag, e.Digest})
		}
		p.Rows(rows)
	}
	if v.TableError != "" {
		p.Item("no tag is served: ", v.TableError)
	}
	return p.Flush()
}

// sentence describes the position for people.
func (r Registration) sentence() string {
	text := map[localregistry.Position]string{
		localregistry.Off: "off", localregistry.Fallback: "fallback, asked after all other hosts",
		localregistry.Gate: "gate, asked before all other hosts",
	}[r.Position]
	switch {
	case r.Error != "" && r.Position == localregistry.Off:
		return terminal.OneLine(r.Error)
	case r.Error != "":
		return text + "; " + terminal.OneLine(r.Error)
	case r.Outdated:
		return text + "; the file that it was made from has changed: enable it again"
	case r.Author == Edited:
		return text + "; its lines were edited since"
	case r.Author == Person:
		return text + "; image-update-agent did not write the file"
	}
	return text
}

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
