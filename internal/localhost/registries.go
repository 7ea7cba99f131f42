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
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// ErrNoRegistry: a text does not name a registry as the first part of an image's name does.
var ErrNoRegistry = errors.New("no registry")

// RefusedError is a hosts.toml that is left as it is. It is release.ErrHeld.
type RefusedError struct {
	File   string // its path, or that of its directory
	Reason string // why, and what to do
}

func (e *RefusedError) Error() string { return e.File + ": " + e.Reason }

// Is reports what a RefusedError is.
func (e *RefusedError) Is(target error) bool { return target == release.ErrHeld }

// Registries are the registries of the node, as containerd's directories of hosts.toml files describe their hosts.
type Registries struct {
	Dirs []string // containerd's config_path, in its order
}

// Author is who wrote the hosts.toml that names the own host.
type Author string

// The authors.
const (
	Agent  Author = "agent"  // we, and it is as we wrote it
	Edited Author = "edited" // we, and a person or a program has changed it
	Person Author = "person" // a person or another program
)

// Registration is where the hosts of a registry have the own host.
type Registration struct {
	Registry string           `json:"registry"`
	Position ownhost.Position `json:"position"` // empty: it is not among them
	File     string           `json:"file"`     // the hosts.toml that containerd reads; empty: none
	Author   Author           `json:"author,omitempty"`
	// Outdated: what the file was made from has changed since, or has another mode or owner. Enabling it again makes it
	// anew.
	Outdated bool `json:"outdated,omitempty"`
	// Error is why containerd cannot use the file.
	Error string `json:"error,omitempty"`
}

// CheckRegistry refuses, with ErrNoRegistry, what is not the first part of an image's name.
func CheckRegistry(name string) error {
	full, err := release.NormalizeRepository(name + "/x/x")
	if err != nil || strings.HasPrefix(name, "_") {
		return fmt.Errorf("%q: %w: want HOST or HOST:PORT", name, ErrNoRegistry)
	}
	if host, _, _ := strings.Cut(full, "/"); host != name {
		return fmt.Errorf("%q: %w: want HOST or HOST:PORT as in the name of an image, such as %s", name, ErrNoRegistry, host)
	}
	return nil
}

// Of returns where the hosts of a registry have the own host.
func (r Registries) Of(ctx context.Context, registry string) (Registration, error) {
	if err := CheckRegistry(registry); err != nil {
		return Registration{}, err
	}
	p, err := r.place(registry)
	if err != nil {
		return Registration{}, err
	}
	found := Registration{Registry: registry}
	dir, err := hosts.FindDir(r.Dirs, registry)
	if err != nil {
		return Registration{}, err
	}
	if dir != "" {
		if file := filepath.Join(dir, hostsTOML); exists(file) {
			found.File = file
		}
	}
	order, err := hosts.Order(ctx, dir, registry)
	if err != nil {
		found.Error = err.Error()
	}
	found.Position = ownhost.PositionIn(urls(order))
	switch {
	case p.ours && p.head.edited:
		found.Author = Edited
	case p.ours:
		found.Author, found.Outdated = Agent, sum(p.source) != p.head.source || p.isOpen()
	case found.Position != ownhost.Off:
		found.Author = Person
	}
	return found, nil
}

// Enabled returns the registries whose hosts have the own host, and those with a hosts.toml of ours, sorted.
func (r Registries) Enabled(ctx context.Context) ([]Registration, error) {
	names := map[string]bool{}
	for _, dir := range r.Dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name := registryOf(entry.Name())
			if CheckRegistry(name) == nil && exists(filepath.Join(dir, entry.Name(), hostsTOML)) {
				names[name] = true
			}
		}
	}
	var found []Registration
	for name := range names {
		one, err := r.Of(ctx, name)
		if err != nil {
			one = Registration{Registry: name, Error: err.Error()}
		}
		if one.Position != ownhost.Off || one.Author != "" || one.Error != "" {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b Registration) int { return strings.Compare(a.Registry, b.Registry) })
	return found, nil
}

// Names are the registries whose hosts have the own host, or whose hosts.toml is ours, sorted.
func (r Registries) Names(ctx context.Context) ([]string, error) {
	enabled, err := r.Enabled(ctx)
	var names []string
	for _, one := range enabled {
		if one.Author != "" { // else it is broken, and not ours
			names = append(names, one.Registry)
		}
	}
	return names, err
}

// registryOf is the registry of a directory's name: containerd also takes mirror.example.com_5000_ for
// mirror.example.com:5000.
func registryOf(name string) string {
	if rest, ok := strings.CutSuffix(name, "_"); ok {
		if cut := strings.LastIndexByte(rest, '_'); cut > 0 {
			return rest[:cut] + ":" + rest[cut+1:]
		}
	}
	return name
}

func urls(order []hosts.Host) (all []string) {
	for _, h := range order {
		all = append(all, h.URL)
	}
	return all
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
