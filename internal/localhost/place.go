// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

const (
	hostsTOML  = "hosts.toml"
	defaultDir = "_default"
)

// place is the directory of a registry, and what its hosts.toml is made from.
type place struct {
	registry string
	dir      string
	hadDir   bool          // it is there
	was      nodefile.File // its hosts.toml; may not exist
	head     header        // of it
	ours     bool
	aside    nodefile.File // the admin's file that is kept beside ours; may not exist

	from      string        // one of the constants in header.go
	source    []byte        // the bytes there; nil: no file
	sourceDir string        // the directory whose files source names
	like      nodefile.File // the file of source: who may read that may read ours; may not exist
}

// place finds where the hosts.toml of a registry is, or would be: in the directory that containerd takes, else in the
// first one.
func (r Registries) place(registry string) (place, error) {
	if len(r.Dirs) == 0 {
		return place{}, errors.New("containerd has no directory of hosts.toml files")
	}
	found, err := hosts.FindDir(r.Dirs, registry)
	if err != nil {
		return place{}, err
	}
	p := place{registry: registry, dir: found}
	own := found != "" && filepath.Base(found) != defaultDir
	switch {
	case own:
		if err := p.readOwn(); err != nil {
			return place{}, err
		}
	case found != "":
		p.dir = filepath.Join(filepath.Dir(found), registry)
	default:
		p.dir = filepath.Join(r.Dirs[0], registry)
	}
	p.sourceDir, p.hadDir = p.dir, exists(p.dir)
	switch {
	case p.ours && p.head.from == fromAside:
		p.from, p.source, p.like = fromAside, p.aside.Data, p.aside
	case p.was.Exists() && !p.ours:
		p.from, p.source, p.like = fromAside, p.was.Data, p.was
	case own && (!p.ours || p.head.from == fromNothing):
		p.from = fromNothing
	default:
		return p, r.takeDefault(&p)
	}
	return p, nil
}

// takeDefault takes _default for what the file is made from: without the file containerd would read it.
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

// isOpen returns whether others may read our file than may read what it was made from.
func (p place) isOpen() bool { return p.ours && p.like.Exists() && !p.was.SameAccess(p.like) }

// noRegistry has no directory but _default.
const noRegistry = "namespace.invalid"

// readOwn reads the hosts.toml of the place and what is kept beside it.
func (p *place) readOwn() (err error) {
	if info, err := os.Lstat(p.dir); err == nil && !info.IsDir() {
		return &RefusedError{p.dir, "no directory of its own, but a symlink: name the own host where it leads"}
	}
	if p.was, err = read(p.dir, hostsTOML); err != nil {
		return refusal(filepath.Join(p.dir, hostsTOML), err)
	}
	if p.aside, err = read(p.dir, fromAside); err != nil {
		return refusal(filepath.Join(p.dir, fromAside), err)
	}
	p.head, p.ours = headerOf(p.was.Data)
	return nil
}

// read reads a file; one that is not there is no error.
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

// refusal is an error of reading a file as the reason to leave it alone, where it is the file's.
func refusal(path string, err error) error {
	if errors.Is(err, nodefile.ErrUnsafe) || errors.Is(err, nodefile.ErrTooLarge) {
		return &RefusedError{path, err.Error()}
	}
	return err
}

// check refuses what cannot become another file with the same hosts.
func (p place) check() error {
	if len(p.source) == 0 {
		for _, pattern := range []string{"*.crt", "*.cert"} {
			if found, err := filepath.Glob(filepath.Join(p.sourceDir, pattern)); err == nil && len(found) > 0 {
				return &RefusedError{p.sourceDir, "containerd takes " + filepath.Base(found[0]) +
					" only while there is no hosts.toml: name it as ca or client in one first"}
			}
		}
		return nil
	}
	if p.from == fromDefault {
		for _, name := range hosts.Files(filepath.Join(p.sourceDir, hostsTOML)) {
			if !filepath.IsAbs(name) {
				return &RefusedError{filepath.Join(p.sourceDir, hostsTOML), fmt.Sprintf("names %q from its own directory: "+
					"give its whole path, so that the file of %s can name it, too", name, p.registry)}
			}
		}
	}
	return nil
}

// compose returns a hosts.toml with the own host in a position, and all other hosts as they are: containerd's own
// parser says so.
func (p place) compose(ctx context.Context, position ownhost.Position) (string, error) {
	file, err := parseHostsFile(string(p.source))
	if err != nil {
		return "", err
	}
	before, err := orderOf(ctx, p.sourceDir, p.source, p.registry)
	if err != nil {
		return "", err
	}
	if ownhost.PositionIn(urls(before)) != ownhost.Off {
		return "", errors.New("names the own host already")
	}
	var bodies []string
	if position == ownhost.Gate {
		bodies = []string{file.withGate()}
	} else {
		for _, u := range upstreams(file.server(), before[len(before)-1].URL) {
			bodies = append(bodies, file.withFallback(u))
		}
	}
	for _, body := range bodies {
		var after []hosts.Host
		if after, err = orderOf(ctx, p.dir, []byte(body), p.registry); err == nil {
			if err = sameBut(before, after, position); err == nil {
				return body, nil
			}
		}
	}
	return "", fmt.Errorf("its hosts would not stay the same: %w; add the own host by hand", err)
}

// upstreams are the ways to name, as a host, the server of a file, or the namespace's own host. A name that another
// host of the file has is taken; with the path that containerd would add it is another name for the same.
func upstreams(server, last string) []upstream {
	if server != "" {
		return []upstream{{url: server}, {url: server + "/v2"}, {url: server + "/"}}
	}
	all := []upstream{{url: last, implicit: true}, {url: last + "/v2", implicit: true}}
	for _, path := range []string{"", "/v2"} {
		plain := "http://" + strings.TrimPrefix(strings.TrimPrefix(last, "https://"), "http://") + path
		all = append(all, upstream{plain, true, true}, upstream{last + path, true, true})
	}
	return all
}

// sameBut returns why after is not before with the own host in its position.
func sameBut(before, after []hosts.Host, position ownhost.Position) error {
	at := len(before)
	if position == ownhost.Gate {
		at = 0
	}
	if len(after) != len(before)+1 || after[at].URL != ownhost.URL {
		return fmt.Errorf("containerd would ask %s", strings.Join(urls(after), ", "))
	}
	for i, host := range slices.Delete(slices.Clone(after), at, at+1) {
		if !host.Same(before[i]) {
			return fmt.Errorf("containerd would ask %s in another way", before[i].URL)
		}
	}
	return nil
}

// orderOf returns the hosts of a namespace as containerd would read them if a directory had these bytes as its
// hosts.toml; nil: none.
func orderOf(ctx context.Context, dir string, data []byte, registry string) (order []hosts.Host, err error) {
	scratch, done, err := scratchDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
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
