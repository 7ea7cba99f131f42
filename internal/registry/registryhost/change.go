// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
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
	return (c.Before == nil) == (c.After == nil) && bytes.Equal(c.Before, c.After) && !c.corrects()
}

// corrects reports whether a copy gets the mode and owner of its source.
func (c Change) corrects() bool { return c.Position != localregistry.Off && c.place.isOpen() }

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
	p, err := r.checked(ctx, registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(position)
	if !p.ours && p.was.Exists() && p.position(ctx) == position {
		c.After = c.Before
		return c, nil // written by a person
	}
	if r.Writer != nil {
		return Change{}, r.madeOf(ctx, p, position)
	}
	if err := p.check(); err != nil {
		return Change{}, err
	}
	text, err := p.compose(ctx, position)
	if err != nil {
		return Change{}, &RefusedError{filepath.Join(p.sourceDir, hostsTOML), err.Error()}
	}
	c.After = []byte(text)
	c.Notes = p.notes(position)
	if c.corrects() {
		c.Notes = append(c.Notes, fmt.Sprintf("%s gets mode %04o and owner %d:%d of the file that it was made from",
			c.File, p.like.Mode, p.like.UID, p.like.GID))
	}
	return c, nil
}

// Disable takes the local registry out of the hosts of a registry: every other byte is as before. For a file whose own
// lines of the agent were changed, or that a person has written, it returns a *RefusedError.
func (r Registries) Disable(ctx context.Context, registry string) (Change, error) {
	p, err := r.checked(ctx, registry)
	if err != nil {
		return Change{}, err
	}
	c := p.change(localregistry.Off)
	switch {
	case p.ours && p.from == fromFile:
		c.After = []byte(p.admins)
	case !p.ours:
		c.After = c.Before
		if p.was.Exists() && p.position(ctx) != localregistry.Off {
			return Change{}, &RefusedError{c.File, "names the local registry, but image-update-agent did not write it: remove " +
				localregistry.URL + " by hand"}
		}
	}
	return c, nil
}

// byHand is the advice for a file that cannot be undone.
const byHand = ": remove the lines of image-update-agent, with " + localregistry.URL + ", by hand"

// checked returns the place of a registry whose files the agent may change.
func (r Registries) checked(ctx context.Context, registry string) (place, error) {
	if err := CheckRegistry(registry); err != nil {
		return place{}, err
	}
	p, err := r.place(registry)
	if err == nil && p.isEdited(ctx) {
		err = &RefusedError{filepath.Join(p.dir, hostsTOML), "was edited" + byHand}
	}
	return p, err
}

// madeByProgram matches comments of programs above files that they generate.
var madeByProgram = lazyregexp.New(`(?im)^\s*#.*(?:generated (?:file|by)|do not (?:edit|modify|change))`)

func (p place) isGenerated() bool {
	return p.from == fromFile && madeByProgram().Match(p.source)
}

// position returns the local registry's position among the hosts in the place's file; Off if containerd cannot read it.
func (p place) position(ctx context.Context) localregistry.Position {
	order, err := hosts.Order(ctx, p.dir, p.registry)
	if err != nil {
		return localregistry.Off
	}
	return localregistry.PositionIn(urls(order))
}

// timeouts returns how long containerd waits for the hosts before the local registry, and why that matters.
func (p place) timeouts(file hostsFile) (notes []string) {
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

// notes returns the changes other than the hosts. compose has parsed the source.
func (p place) notes(position localregistry.Position) (notes []string) {
	file, _ := parseHostsFile(string(p.source))
	if len(p.source) > 0 && !file.hasTables() {
		notes = append(notes,
			"containerd 1.6 and 1.7 ignore a file without a table of hosts; with the local registry they read it")
	}
	if p.isGenerated() {
		notes = append(notes, fmt.Sprintf("another program writes %s (k3s and RKE2 at each start), so --write does not: "+
			"make that program write this, or name %s (in registries.yaml, as an endpoint of %s)",
			filepath.Join(p.dir, hostsTOML), localregistry.URL, p.registry))
	}
	if p.from == fromDefault {
		notes = append(notes, fmt.Sprintf("%s now has the hosts of %s; when that changes, enable %s again",
			filepath.Join(p.dir, hostsTOML), filepath.Join(p.sourceDir, hostsTOML), p.registry))
	}
	if position == localregistry.Fallback {
		notes = append(notes, p.timeouts(file)...)
	}
	return notes
}

const (
	hostsTOML  = "hosts.toml"
	defaultDir = "_default"
)

// place is the directory of a registry, and the source of its hosts.toml.
type place struct {
	registry string
	found    string // the directory that containerd uses for it; empty if there is none
	dir      string
	hadDir   bool          // it exists
	was      nodefile.File // its hosts.toml; may not exist
	ours     bool          // it has blocks of the agent
	altered  bool          // they are not as the agent wrote them for this registry: readOwn sees this of some
	block    block
	admins   string // was without the blocks

	isEarlier bool          // an earlier version wrote its hosts.toml
	kept      nodefile.File // the file of the admin that it has kept; may not exist

	from      string        // one of the constants in edit.go
	source    []byte        // the content of the source; nil if there is no file
	sourceDir string        // the directory of the source's files
	like      nodefile.File // the source file: users who can read it may read the edited one; may not exist
}

// place finds the place of a registry's hosts.toml: in the directory that containerd uses, else in the first one.
func (r Registries) place(registry string) (place, error) {
	if len(r.Dirs) == 0 {
		return place{}, errors.New("containerd has no directory of hosts.toml files")
	}
	found, err := hosts.FindDir(r.Dirs, registry)
	if err != nil {
		return place{}, err
	}
	p := place{registry: registry, found: found, dir: found}
	own := found != "" && filepath.Base(found) != defaultDir
	switch {
	case own:
		if err := p.readOwn(); err != nil {
			return p, err
		}
	case found != "":
		p.dir = filepath.Join(filepath.Dir(found), registry)
	default:
		p.dir = filepath.Join(r.Dirs[0], registry)
	}
	p.sourceDir, p.hadDir = p.dir, exists(p.dir)
	switch {
	case p.isCopy(), !own:
		return p, r.takeDefault(&p)
	case p.was.Exists() && (!p.ours || p.block.from != fromNothing || p.admins != ""):
		p.from, p.source, p.like = fromFile, []byte(p.admins), p.was
		if p.kept.Exists() {
			p.like = p.kept
		}
	default:
		p.from = fromNothing
	}
	return p, nil
}

// isCopy reports whether the file is a copy of _default, or of nothing, which nobody has edited.
func (p place) isCopy() bool {
	switch {
	case !p.ours:
		return false
	case p.block.from == fromDirectory:
		return p.admins == ""
	}
	return p.block.from == fromDefault && (p.isEarlier || sum([]byte(p.admins)) == p.block.sum)
}

// takeDefault uses _default as the source: without the generated file containerd would read it.
func (r Registries) takeDefault(p *place) error {
	p.from = fromDirectory
	dir, err := hosts.FindDir(r.Dirs, noRegistry)
	if err != nil || dir == "" {
		return err
	}
	file, err := read(dir, hostsTOML)
	if err != nil {
		return refusal(filepath.Join(dir, hostsTOML), err)
	}
	p.sourceDir = dir
	if file.Exists() {
		p.from, p.source, p.like = fromDefault, file.Data, file
	}
	return nil
}

// isOpen reports whether a copy has other permissions than its source.
func (p place) isOpen() bool { return p.ours && p.like.Exists() && !p.was.SameAccess(p.like) }

// isOutdated reports whether the source of a copy, or of a file of an earlier version, has changed since.
func (p place) isOutdated() bool {
	return (p.isCopy() || p.isEarlier) && (p.isOpen() || sum(p.source) != cmp.Or(p.block.sum, sum(nil)))
}

// noRegistry has no directory other than _default.
const noRegistry = "namespace.invalid"

// readOwn reads the hosts.toml of the place.
func (p *place) readOwn() (err error) {
	if info, err := os.Lstat(p.dir); err == nil && !info.IsDir() {
		return &RefusedError{p.dir, "a symlink: enable the local registry in the directory that it points to"}
	}
	if p.was, err = read(p.dir, hostsTOML); err != nil {
		return refusal(filepath.Join(p.dir, hostsTOML), err)
	}
	if m := earlierHeader().FindSubmatch(p.was.Data); m != nil {
		return p.readEarlier(m)
	}
	if p.admins, p.block, p.ours, err = restore(string(p.was.Data)); err != nil {
		p.altered = true
		return &RefusedError{filepath.Join(p.dir, hostsTOML), err.Error() + byHand}
	}
	return nil
}

// readEarlier takes all lines of the hosts.toml of an earlier version, with these parts of its header, as the agent's:
// the admin's are those of the file that was kept.
func (p *place) readEarlier(header [][]byte) (err error) {
	p.ours, p.isEarlier = true, true
	file, source := filepath.Join(p.dir, hostsTOML), string(header[3])
	p.block.marks = marks{
		position: localregistry.Position(header[1]), registry: string(header[2]), sum: string(header[4]),
		from: map[string]string{
			keptFile: fromFile, "no hosts.toml": fromNothing, "no directory of its own": fromDirectory,
			"_default/hosts.toml": fromDefault,
		}[source],
	}
	p.altered = sum(p.was.Data[len(header[0]):]) != string(header[5]) || p.block.registry != p.registry
	if source == keptFile {
		if p.kept, err = read(p.dir, keptFile); err != nil {
			return refusal(filepath.Join(p.dir, keptFile), err)
		}
		p.admins = string(p.kept.Data)
	}
	switch {
	case source == keptFile && !p.kept.Exists():
		return &RefusedError{file, "an earlier version made it from " + keptFile + ", which is gone" + byHand}
	case p.altered && source == keptFile:
		return &RefusedError{file, "an earlier version made it, and it was edited or copied: make the edit in " + keptFile +
			" beside it, and rename that to " + hostsTOML}
	case p.altered:
		return &RefusedError{file, "an earlier version made it, and it was edited or copied" + byHand}
	}
	return nil
}

// read reads a file; a missing one is not an error.
func read(dir, name string) (file nodefile.File, err error) {
	d, err := nodefile.OpenDir(dir)
	if err != nil {
		return nodefile.File{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	file, err = d.Read(name, maxHosts)
	if errors.Is(err, fs.ErrNotExist) {
		return nodefile.File{}, nil
	}
	return file, err
}

// refusal returns an error of reading a file as the reason not to touch it, if the file is the cause.
func refusal(path string, err error) error {
	if errors.Is(err, nodefile.ErrUnsafe) || errors.Is(err, nodefile.ErrTooLarge) {
		return &RefusedError{path, err.Error()}
	}
	return err
}

// check rejects a file that cannot be changed without changing its hosts.
func (p place) check() error {
	if len(p.source) == 0 {
		for _, pattern := range []string{"*.crt", "*.cert"} {
			if found, err := filepath.Glob(filepath.Join(p.sourceDir, pattern)); err == nil && len(found) > 0 {
				return &RefusedError{p.sourceDir, "containerd takes " + filepath.Base(found[0]) +
					" only while there is no hosts.toml: first write one that names it as ca or client"}
			}
		}
		return nil
	}
	if p.from == fromDefault {
		for _, name := range hosts.Files(filepath.Join(p.sourceDir, hostsTOML)) {
			if !filepath.IsAbs(name) {
				return &RefusedError{filepath.Join(p.sourceDir, hostsTOML), fmt.Sprintf("names %q from its own directory: "+
					"give its full path, so that the file of %s can also name it", name, p.registry)}
			}
		}
	}
	return nil
}

// compose returns a hosts.toml with the local registry at a position, and all other hosts unchanged according to
// containerd's parser.
func (p place) compose(ctx context.Context, position localregistry.Position) (string, error) {
	file, err := parseHostsFile(string(p.source))
	if err != nil { // it says the place
		return "", err
	}
	before, err := orderOf(ctx, p.sourceDir, p.source, p.registry)
	if err != nil {
		return "", err
	}
	if localregistry.PositionIn(urls(before)) != localregistry.Off {
		return "", errors.New("already names the local registry")
	}
	last := before[len(before)-1].URL
	if position == localregistry.Fallback && strings.ContainsAny(last, "[]") {
		return "", fmt.Errorf("containerd 1.x ignores a file with a table for %s, which has brackets in its name: "+
			"name the server by its host name, or use --gate", outside.Mask(maskedURL(last)))
	}
	m := marks{position: position, registry: p.registry, from: p.from}
	if p.from == fromDefault {
		m.sum = sum(p.source)
	}
	for _, text := range file.edits(m, last) {
		var after []hosts.Host
		if after, err = orderOf(ctx, p.dir, []byte(text), p.registry); err == nil {
			if err = sameBut(before, after, position); err == nil {
				return text, nil
			}
		}
	}
	return "", fmt.Errorf("the order of hosts would change: %w; add the local registry by hand", err)
}

// isEdited reports whether a person has changed the agent's own lines. It does not know this of a file whose hosts
// containerd cannot read.
func (p place) isEdited(ctx context.Context) bool {
	if !p.ours || p.isEarlier || p.altered { // readOwn has compared
		return p.altered
	}
	order, err := orderOf(ctx, p.sourceDir, []byte(p.admins), p.registry)
	if err != nil {
		return false
	}
	file, err := parseHostsFile(p.admins)
	return err != nil || !slices.ContainsFunc(file.edits(p.block.marks, order[len(order)-1].URL), func(text string) bool {
		_, is, _, _ := restore(text)
		return is.added == p.block.added
	})
}

// sameBut returns how after differs from before, apart from the local registry at its position.
func sameBut(before, after []hosts.Host, position localregistry.Position) error {
	at := len(before)
	if position == localregistry.Gate {
		at = 0
	}
	if len(after) != len(before)+1 || after[at].URL != localregistry.URL {
		return fmt.Errorf("containerd would ask %s", strings.Join(urls(after), ", "))
	}
	for i, host := range slices.Delete(slices.Clone(after), at, at+1) {
		if !host.Same(before[i]) {
			return fmt.Errorf("containerd would ask %s in another way", before[i].URL)
		}
	}
	return nil
}

// orderOf returns the hosts of a namespace that containerd would read from a directory with these bytes as its
// hosts.toml; nil: none.
func orderOf(ctx context.Context, dir string, data []byte, registry string) (order []hosts.Host, err error) {
	scratch, err := os.MkdirTemp("", "image-update-agent-hosts-")
	if err != nil {
		return nil, fmt.Errorf("directory for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() != hostsTOML {
			if err := os.Symlink(filepath.Join(dir, entry.Name()), filepath.Join(scratch, entry.Name())); err != nil {
				return nil, err
			}
		}
	}
	if data != nil {
		if err := os.WriteFile(filepath.Join(scratch, hostsTOML), data, 0o600); err != nil {
			return nil, err
		}
	}
	order, err = hosts.Order(ctx, scratch, registry)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), scratch, dir))
	}
	return order, nil
}

// madeOf refuses to write a hosts.toml that the distribution would overwrite. Its *MadeOfError has the lines that make
// it name the local registry: the current hosts of the registry, in order, and the local registry first or last. The
// registry itself, which comes after all endpoints, is named only if the local registry must follow it.
func (r Registries) madeOf(ctx context.Context, p place, position localregistry.Position) error {
	order, err := hosts.Order(ctx, p.found, p.registry)
	if err != nil {
		return &RefusedError{p.found, err.Error()}
	}
	var endpoints []string
	for n, url := range urls(order) {
		isRegistry := n == len(order)-1
		if url != localregistry.URL && (!isRegistry || position == localregistry.Fallback) {
			endpoints = append(endpoints, url)
		}
	}
	if position == localregistry.Gate {
		endpoints = append([]string{localregistry.URL}, endpoints...)
	} else {
		endpoints = append(endpoints, localregistry.URL)
	}
	for n, e := range endpoints {
		endpoints[n] = outside.Mask(e)
	}
	return &MadeOfError{*r.Writer, p.registry, r.Writer.RegistriesText(p.registry, endpoints)}
}

// MadeOfError is a hosts.toml that the agent must not write, because the distribution writes it at each start.
type MadeOfError struct {
	Writer   platform.Platform
	Registry string
	Lines    string // what the distribution's Registries needs, so that the hosts.toml names the local registry
}

// File is the file from which the distribution writes the hosts.toml.
func (e *MadeOfError) File() string { return e.Writer.At(e.Writer.Registries) }

func (e *MadeOfError) Error() string {
	return fmt.Sprintf("%s: %s writes the hosts.toml files from it at each start: add this to what it has for %s:\n%s"+
		"then restart %[2]s and enable again, so that the agent remembers it", e.File(), e.Writer.Name, e.Registry, e.Lines)
}

// Is reports whether target is release.ErrHeld.
func (e *MadeOfError) Is(target error) bool { return target == release.ErrHeld }

// Print writes for people what to add to the file.
func (e *MadeOfError) Print(out, said io.Writer) {
	fmt.Fprint(out, e.Lines)
	fmt.Fprintf(said, "next: add this to what %s has for %s, restart %s, and enable again with --write, so that "+
		"the agent remembers it\n", e.File(), e.Registry, e.Writer.Name)
}
