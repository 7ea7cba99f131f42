// SPDX-License-Identifier: Apache-2.0

// Package registryhost is the node's local registry: its table, and the hosts.toml files that name it.
//
// The daemon writes the table (Store), a short-lived program answers requests from it (package answer), and only a
// person or Salt makes containerd ask it (Registries). Package localregistry defines the terms and decides the content
// of the table.
//
// Why a person enables it: the admin owns hosts.toml, the daemon may not write to /etc/containerd, and an unused socket
// is one more open port. The port is 334: unassigned, only for root, and below 512, where bindresvport(3) and NFS take
// no ports.
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
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// RefusedError says that a hosts.toml was not changed. It is release.ErrHeld.
type RefusedError struct {
	File   string // its path, or that of its directory
	Reason string // the reason, and the remedy
}

func (e *RefusedError) Error() string { return e.File + ": " + e.Reason }

// Is reports whether target is release.ErrHeld.
func (e *RefusedError) Is(target error) bool { return target == release.ErrHeld }

// Registries are the node's registries with their hosts in containerd's directories of hosts.toml files.
type Registries struct {
	Dirs []string // containerd's config_path, in order
	// Writer is the distribution that writes the hosts.toml files of Dirs at each start; nil if none does.
	Writer *platform.Platform
}

// Author is the author of the hosts.toml that names the local registry; empty if none names it, or it is not known.
type Author string

// The authors.
const (
	Agent  Author = "agent"  // the agent added it, and its lines are unchanged since
	Edited Author = "edited" // the agent added it, and its lines were changed since by a person or a program
	Person Author = "person" // a person or another program
)

// Registration is the local registry's position among the hosts of a registry.
type Registration struct {
	Registry string                 `json:"registry"`
	Position localregistry.Position `json:"position"` // empty if it is not among them
	File     string                 `json:"file"`     // the hosts.toml that containerd reads; empty if there is none
	Author   Author                 `json:"author,omitempty"`
	// Outdated: the file is a copy of _default's, or of an earlier version, and its source has changed since, or has
	// another mode or owner. Enabling it again updates the file.
	Outdated bool `json:"outdated,omitempty"`
	// Error is why containerd cannot use the file, or enable and disable refuse to change it.
	Error string `json:"error,omitempty"`
}

// CheckRegistry returns localregistry.ErrNoRegistry if a text is not the first part of an image's name.
func CheckRegistry(name string) error {
	full, err := release.NormalizeRepository(name + "/x/x")
	if err != nil || strings.HasPrefix(name, "_") {
		return fmt.Errorf("%q: %w: want HOST or HOST:PORT", name, localregistry.ErrNoRegistry)
	}
	if host, _, _ := strings.Cut(full, "/"); host != name {
		return fmt.Errorf("%q: %w: want HOST or HOST:PORT as in the name of an image, such as %s", name,
			localregistry.ErrNoRegistry, host)
	}
	return nil
}

// Of returns the registration of a registry.
func (r Registries) Of(ctx context.Context, registry string) (Registration, error) {
	if err := CheckRegistry(registry); err != nil {
		return Registration{}, err
	}
	p, err := r.place(registry)
	refused, isRefused := errors.AsType[*RefusedError](err)
	if err != nil && !isRefused {
		return Registration{}, err
	}
	found := Registration{Registry: registry}
	if file := filepath.Join(p.found, hostsTOML); p.found != "" && exists(file) {
		found.File = file
	}
	order, err := hosts.Order(ctx, p.found, registry)
	if err != nil {
		found.Error = err.Error()
	}
	found.Position = localregistry.PositionIn(urls(order))
	// What a symlink leads to is enabled where it is.
	isLinked := found.Position != localregistry.Off && (isSymlink(p.found) || isSymlink(found.File))
	if isRefused && !isLinked {
		found.Error = refused.Reason
		if refused.File != found.File {
			found.Error = refused.Error()
		}
	}
	switch {
	case p.isEdited(ctx):
		found.Author = Edited
	case p.ours:
		found.Author, found.Outdated = Agent, !isRefused && p.isOutdated()
	case found.Position != localregistry.Off && !isRefused: // a refused file may be the agent's
		found.Author = Person
	}
	return found, nil
}

// Enabled returns the registries whose hosts include the local registry, and those with a generated hosts.toml, sorted.
// If this user may not read one of the files, it returns the error: the answer is not known.
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
			_, err := os.Lstat(filepath.Join(dir, entry.Name(), hostsTOML))
			if CheckRegistry(name) == nil && (err == nil || errors.Is(err, fs.ErrPermission)) {
				names[name] = true
			}
		}
	}
	var found []Registration
	for name := range names {
		one, err := r.Of(ctx, name)
		if errors.Is(err, fs.ErrPermission) { // nothing is wrong with the file: another user can read it
			return nil, err
		}
		if err != nil {
			one = Registration{Registry: name, Error: err.Error()}
		}
		if one.Position != localregistry.Off || one.Author != "" || one.Error != "" {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b Registration) int { return strings.Compare(a.Registry, b.Registry) })
	return found, nil
}

// Names returns the registries whose hosts include the local registry, or whose hosts.toml is generated, sorted.
func (r Registries) Names(ctx context.Context) ([]string, error) {
	enabled, err := r.Enabled(ctx)
	var names []string
	for _, one := range enabled {
		// Otherwise it is broken and not generated, or a symlink.
		if one.Author != "" || one.Position != localregistry.Off && one.Error != "" {
			names = append(names, one.Registry)
		}
	}
	return names, err
}

// registryOf returns the registry for a directory's name: containerd also uses mirror.example.com_5000_ for
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

func isSymlink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
