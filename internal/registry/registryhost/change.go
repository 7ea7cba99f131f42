// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Change is a change of a hosts.toml by enabling or disabling. Nothing is written before Write.
type Change struct {
	Registry string
	Position localregistry.Position // afterwards
	File     string                 // the path of the hosts.toml
	Before   []byte                 // nil if there is none
	After    []byte                 // nil if it is removed
	Notes    []string               // for people

	place place
}

// IsNone reports whether there is no change.
func (c Change) IsNone() bool {
	return (c.Before == nil) == (c.After == nil) && bytes.Equal(c.Before, c.After) && !c.leavesAside() && !c.corrects()
}

// corrects reports whether the agent's file gets the mode and owner of its source.
func (c Change) corrects() bool { return c.Position != localregistry.Off && c.place.isOpen() }

// leavesAside reports whether the admin's file is still kept although it is in use: disabling was interrupted.
func (c Change) leavesAside() bool { return c.Position == localregistry.Off && c.place.aside.Exists() }

func (p place) change(position localregistry.Position) Change {
	c := Change{Registry: p.registry, Position: position, File: filepath.Join(p.dir, hostsTOML), place: p}
	if p.was.Exists() {
		c.Before = append([]byte{}, p.was.Data...)
	}
	return c
}

// Enable adds the local registry to the hosts of a registry. All other hosts stay unchanged and in order, or it returns
// a *RefusedError.
func (r Registries) Enable(ctx context.Context, registry string, position localregistry.Position) (Change, error) {
	p, err := r.checked(registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(position)
	if !p.ours && p.was.Exists() {
		if order, err := hosts.Order(ctx, p.dir, registry); err == nil && localregistry.PositionIn(urls(order)) == position {
			c.After = c.Before
			return c, nil // written by a person
		}
	}
	if r.MadeOf != "" {
		return Change{}, r.madeOf(ctx, registry, position)
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
	if position == localregistry.Fallback {
		c.Notes = append(c.Notes, p.timeouts()...)
	}
	if c.corrects() {
		c.Notes = append(c.Notes, fmt.Sprintf("%s gets mode %04o and owner %d:%d of the file that it was made from",
			c.File, p.like.Mode, p.like.UID, p.like.GID))
	}
	return c, nil
}

// nameOf returns the source file of a hosts.toml.
func nameOf(p place) string {
	if p.ours && p.from == fromAside {
		return fromAside
	}
	return hostsTOML
}

// Disable removes the local registry from the hosts of a registry and restores the previous file byte for byte. For a
// file that was changed since, or written by a person, it returns a *RefusedError.
func (r Registries) Disable(ctx context.Context, registry string) (Change, error) {
	p, err := r.checked(registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(localregistry.Off)
	switch {
	case p.ours && p.from == fromAside:
		c.After = append([]byte{}, p.aside.Data...)
	case !p.ours:
		c.After = c.Before
		if !p.was.Exists() {
			break
		}
		order, err := hosts.Order(ctx, p.dir, registry)
		if err == nil && localregistry.PositionIn(urls(order)) != localregistry.Off {
			return Change{}, &RefusedError{c.File, "names the local registry, but image-update-agent did not write it: remove " +
				localregistry.URL + " by hand"}
		}
	}
	return c, nil
}

// byHand is the advice for a file that cannot be undone.
const byHand = ": remove " + localregistry.URL + " and the first two lines by hand"

// checked returns the place of a registry whose files the agent may change.
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
			", which image-update-agent did not write: remove one of the two"}
	}
	return p, err
}

// madeByProgram matches comments of programs above files that they generate.
var madeByProgram = lazyregexp.New(`(?im)^\s*#.*(?:generated (?:file|by)|do not (?:edit|modify|change))`)

func isGenerated(data []byte) bool { return madeByProgram().Match(data) }

// timeouts returns how long containerd waits for the hosts before the local registry, and why that matters.
func (p place) timeouts() []string {
	file, err := parseHostsFile(string(p.source))
	if err != nil {
		return nil
	}
	var notes []string
	if !has(file.whole, "dial_timeout") {
		notes = append(notes, fmt.Sprintf("dial_timeout = %q: kubelet pulls one image after the other, and behind a network "+
			"that drops packets containerd (from 2.1) then asks the local registry after %[1]s instead of 30s; "+
			"if a connection to %s takes longer, set dial_timeout in your file", dialTimeout, p.registry))
	}
	for _, host := range file.patientHosts() {
		notes = append(notes, fmt.Sprintf("%s has no dial_timeout: behind a network that drops packets each pull waits 30s "+
			"for it; add dial_timeout = %q to it in your file", outside.Mask(maskedURL(host)), dialTimeout))
	}
	return notes
}

// notes returns the changes other than the hosts.
func (p place) notes() (notes []string) {
	file, err := parseHostsFile(string(p.source))
	if err == nil && len(p.source) > 0 && len(file.tables) == 0 {
		notes = append(notes,
			"containerd 1.6 and 1.7 ignore a file without a table of hosts; with the local registry they read it")
	}
	if isGenerated(p.source) || strings.Contains(p.dir, "/rancher/") {
		notes = append(notes, fmt.Sprintf("another program writes %s (k3s and RKE2 at each start): make "+
			"that program name %s (in registries.yaml, as an endpoint of %s); status reports a lost local registry",
			filepath.Join(p.dir, hostsTOML), localregistry.URL, p.registry))
	}
	if p.from == fromDefault {
		notes = append(notes, fmt.Sprintf("%s now has the hosts of %s; after a change there, enable %s again",
			filepath.Join(p.dir, hostsTOML), filepath.Join(p.sourceDir, hostsTOML), p.registry))
	}
	return notes
}
