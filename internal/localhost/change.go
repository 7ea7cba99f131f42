// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Change is what enabling or disabling makes of a hosts.toml. Nothing is written before Write.
type Change struct {
	Registry string
	Position ownhost.Position // afterwards
	File     string           // the path of the hosts.toml
	Before   []byte           // nil: there is none
	After    []byte           // nil: it is removed
	Notes    []string         // what a person has to know

	place place
}

// IsNone returns whether there is nothing to write.
func (c Change) IsNone() bool {
	return (c.Before == nil) == (c.After == nil) && bytes.Equal(c.Before, c.After) && !c.leavesAside() && !c.corrects()
}

// corrects returns whether our file gets another mode or owner, those of what it is made from.
func (c Change) corrects() bool { return c.Position != ownhost.Off && c.place.isOpen() }

// leavesAside returns whether the admin's file is kept although it is in force: disabling was interrupted.
func (c Change) leavesAside() bool { return c.Position == ownhost.Off && c.place.aside.Exists() }

func (p place) change(position ownhost.Position) Change {
	c := Change{Registry: p.registry, Position: position, File: filepath.Join(p.dir, hostsTOML), place: p}
	if p.was.Exists() {
		c.Before = append([]byte{}, p.was.Data...)
	}
	return c
}

// Enable puts the own host among the hosts of a registry. All other hosts stay as they are, in their order, or it is a
// *RefusedError.
func (r Registries) Enable(ctx context.Context, registry string, position ownhost.Position) (Change, error) {
	p, err := r.checked(registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(position)
	if !p.ours && p.was.Exists() {
		if order, err := hosts.Order(ctx, p.dir, registry); err == nil && ownhost.PositionIn(urls(order)) == position {
			c.After = c.Before
			return c, nil // a person has written it
		}
	}
	if err := p.check(); err != nil {
		return Change{}, err
	}
	body, err := p.compose(ctx, position)
	if err != nil {
		return Change{}, &RefusedError{filepath.Join(p.sourceDir, nameOf(p)), err.Error()}
	}
	c.After = header{position: position, registry: registry, from: p.from, source: sum(p.source)}.withHeader(body)
	c.Notes = p.notes()
	if c.corrects() {
		c.Notes = append(c.Notes, fmt.Sprintf("%s gets mode %04o and owner %d:%d, those of the file that it was made from",
			c.File, p.like.Mode, p.like.UID, p.like.GID))
	}
	return c, nil
}

// nameOf is the file that a hosts.toml is made from.
func nameOf(p place) string {
	if p.ours && p.from == fromAside {
		return fromAside
	}
	return hostsTOML
}

// Disable takes the own host from the hosts of a registry: what was there before is there again, to the byte. A file
// that was changed since, or that a person has written, is a *RefusedError.
func (r Registries) Disable(ctx context.Context, registry string) (Change, error) {
	p, err := r.checked(registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(ownhost.Off)
	switch {
	case p.ours && p.from == fromAside:
		c.After = append([]byte{}, p.aside.Data...)
	case !p.ours:
		c.After = c.Before
		if !p.was.Exists() {
			break
		}
		if order, err := hosts.Order(ctx, p.dir, registry); err == nil && ownhost.PositionIn(urls(order)) != ownhost.Off {
			return Change{}, &RefusedError{c.File, "names the own host, but image-update-agent did not write it: take " +
				ownhost.URL + " out by hand"}
		}
	}
	return c, nil
}

// byHand is what to do about a file that we cannot undo.
const byHand = ": take " + ownhost.URL + " and the first two lines out by hand"

// checked is the place of a registry, where its files are as we left them.
func (r Registries) checked(registry string) (place, error) {
	if err := CheckRegistry(registry); err != nil {
		return place{}, err
	}
	p, err := r.place(registry)
	if err != nil {
		return place{}, err
	}
	file := filepath.Join(p.dir, hostsTOML)
	switch {
	case p.ours && p.head.edited && p.head.from == fromAside:
		err = &RefusedError{file, "was edited: make the edit in " + fromAside + " beside it, and rename that to " + hostsTOML}
	case p.ours && p.head.edited:
		err = &RefusedError{file, "was edited" + byHand}
	case p.ours && p.head.from == fromAside && !p.aside.Exists():
		err = &RefusedError{file, "was made from " + fromAside + ", which is gone" + byHand}
	case !p.ours && p.aside.Exists() && !bytes.Equal(p.aside.Data, p.was.Data):
		err = &RefusedError{filepath.Join(p.dir, fromAside), "differs from " + hostsTOML +
			", which image-update-agent did not write: remove the one that is not wanted"}
	}
	return p, err
}

// madeByProgram is what programs write above a file of theirs.
var madeByProgram = regexp.MustCompile(`(?im)^\s*#.*(?:generated (?:file|by)|do not (?:edit|modify|change))`)

func isGenerated(data []byte) bool { return madeByProgram.Match(data) }

// notes are what changes beside the hosts.
func (p place) notes() (notes []string) {
	file, err := parseHostsFile(string(p.source))
	if err == nil && len(p.source) > 0 && len(file.tables) == 0 {
		notes = append(notes,
			"containerd 1.6 and 1.7 ignore a file without a table of hosts; with the own host in it they take it")
	}
	if isGenerated(p.source) || strings.Contains(p.dir, "/rancher/") {
		notes = append(notes, fmt.Sprintf("another program writes %s, k3s and RKE2 at each start: have that one name %s (in "+
			"registries.yaml, as an endpoint of %s); status says when the own host is lost",
			filepath.Join(p.dir, hostsTOML), ownhost.URL, p.registry))
	}
	if p.from == fromDefault {
		notes = append(notes, fmt.Sprintf("%s has the hosts of %s now; after a change there, enable %s again",
			filepath.Join(p.dir, hostsTOML), filepath.Join(p.sourceDir, hostsTOML), p.registry))
	}
	return notes
}
