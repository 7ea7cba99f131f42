// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// View is `localhost show --output json`.
type View struct {
	Address string `json:"address"`
	Table   string `json:"table"` // the path of the table
	// TableError is why the own host answers nothing; empty: it answers what the entries say.
	TableError string         `json:"tableError,omitempty"`
	Registries []RegistryView `json:"registries"` // those that have the own host, have lost it, or are in the table
	// Lost are the registries for which it was enabled and does not stand where it was.
	Lost []ownhost.LostRegistry `json:"lost"`
	// WantedError is why it is not known for which registries it was enabled; empty: it is.
	WantedError string `json:"wantedError,omitempty"`
}

// RegistryView is one registry.
type RegistryView struct {
	Registration
	Entries []ownhost.Entry `json:"entries"`
}

// Show returns which registries have the own host or have lost it, and what it answers for them; with names, of these
// alone.
func (m Memory) Show(ctx context.Context, table string, names ...string) (View, error) {
	v := View{Address: ownhost.Address, Table: table, Registries: []RegistryView{}, Lost: []ownhost.LostRegistry{}}
	t, err := ReadTable(table)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.TableError = "the daemon has written none yet"
	case err != nil:
		v.TableError = err.Error()
	}
	lost, unknown := ownhost.Lost(m, func(registry string) ownhost.Position { return m.usable(ctx, registry) })
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
		isOther := func(e ownhost.Entry) bool { return e.Registry != one.Registry }
		entries := slices.DeleteFunc(slices.Clone(t.Entries), isOther)
		v.Registries = append(v.Registries, RegistryView{one, append([]ownhost.Entry{}, entries...)})
	}
	return v, nil
}

// usable is where the own host stands among the hosts of a registry; Off where containerd cannot use its hosts.toml.
func (m Memory) usable(ctx context.Context, registry string) ownhost.Position {
	found, err := m.Registries.Of(ctx, registry)
	if err != nil || found.Error != "" {
		return ownhost.Off
	}
	return found.Position
}

func (m Memory) registrations(
	ctx context.Context, t ownhost.Table, lost []ownhost.LostRegistry, names []string,
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

// IsOff returns whether no registry of the view has the own host.
func (v View) IsOff() bool {
	return !slices.ContainsFunc(v.Registries, func(r RegistryView) bool { return r.Position != ownhost.Off })
}

// Write writes the view for people.
func (v View) Write(p *terminal.Page) error {
	if len(v.Registries) == 0 {
		p.Line("no registry has the own host, and none of its tags is followed")
	}
	if v.WantedError != "" {
		p.Item("for which registries it was enabled is not known: ", v.WantedError)
	}
	for _, r := range v.Registries {
		p.Line(r.Registry + ": " + r.sentence())
		if r.File != "" {
			p.Item("  file  ", r.File)
		}
		for _, l := range v.Lost {
			if l.Registry == r.Registry {
				p.Item("  lost  ", "it was enabled as "+string(l.Wanted)+": "+l.Reason)
				p.Item("        ", Remedy(ownhost.Wanted{Registry: l.Registry, Position: l.Wanted}))
			}
		}
		var rows [][]string
		for _, e := range r.Entries {
			rows = append(rows, []string{"  " + e.Repository + ":" + e.Tag, e.Digest.String()})
		}
		p.Rows(rows)
	}
	if v.TableError != "" {
		p.Item("no tag is answered: ", v.TableError)
	}
	return p.Flush()
}

// sentence is where the own host is, for people.
func (r Registration) sentence() string {
	text := map[ownhost.Position]string{
		ownhost.Off: "off", ownhost.Fallback: "fallback, asked where no other host answers",
		ownhost.Gate: "gate, asked before all others",
	}[r.Position]
	switch {
	case r.Error != "":
		return text + "; " + terminal.OneLine(r.Error)
	case r.Outdated:
		return text + "; what its file was made from has changed: enable it again"
	case r.Author == Edited:
		return text + "; the file was edited since"
	case r.Author == Person:
		return text + "; image-update-agent did not write the file"
	}
	return text
}
