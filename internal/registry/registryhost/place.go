// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

const (
	hostsTOML  = "hosts.toml"
	defaultDir = "_default"
)

// place is the directory of a registry, and the source of its hosts.toml.
type place struct {
	registry string
	dir      string
	hadDir   bool          // it exists
	was      nodefile.File // its hosts.toml; may not exist
	head     header        // of was
	ours     bool
	aside    nodefile.File // the admin's file kept next to the generated one; may not exist

	from      string        // one of the constants in header.go
	source    []byte        // the content of the source; nil if there is no file
	sourceDir string        // the directory of the source's files
	like      nodefile.File // the source file: users who can read it may read the generated one; may not exist
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

// isOpen reports whether the generated file has other permissions than its source.
func (p place) isOpen() bool { return p.ours && p.like.Exists() && !p.was.SameAccess(p.like) }

// noRegistry has no directory other than _default.
const noRegistry = "namespace.invalid"

// readOwn reads the hosts.toml of the place and the file kept next to it.
func (p *place) readOwn() (err error) {
	if info, err := os.Lstat(p.dir); err == nil && !info.IsDir() {
		return &RefusedError{p.dir, "a symlink: enable the local registry in the directory that it points to"}
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
					" only while there is no hosts.toml: name it as ca or client in one first"}
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
	if err != nil {
		return "", err
	}
	before, err := orderOf(ctx, p.sourceDir, p.source, p.registry)
	if err != nil {
		return "", err
	}
	if localregistry.PositionIn(urls(before)) != localregistry.Off {
		return "", errors.New("already names the local registry")
	}
	var bodies []string
	if position == localregistry.Gate {
		bodies = []string{file.withGate()}
	} else {
		last := before[len(before)-1].URL
		if strings.ContainsAny(last, "[]") {
			return "", fmt.Errorf("containerd 1.x ignores a file with a table for %s, which has brackets in its name: "+
				"name the server by its host name, or use --gate", outside.Mask(maskedURL(last)))
		}
		for _, u := range upstreams(file.server(), last) {
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
	return "", fmt.Errorf("the order of hosts would change: %w; add the local registry by hand", err)
}

// upstreams returns the ways to name the server of a file, or the namespace itself, as a host. If another host of the
// file has that name, the name with containerd's default path is used instead.
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
