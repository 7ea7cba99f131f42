// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// maxImports limits the files that a configuration of containerd may import.
const maxImports = 64

// containerdConfig is containerd's configuration with all imports.
type containerdConfig struct {
	files []loadedFile // in load order; empty if there is no configuration
	read  bool         // a configuration exists
	err   error        // error of unreadable parts: containerd may have other values
}

// loadedFile is the content of a file.
type loadedFile struct {
	Version int            `toml:"version"`
	Imports []string       `toml:"imports"`
	Plugins map[string]any `toml:"plugins"`
}

// readContainerd reads the configuration of a platform.
func readContainerd(p platform.Platform) (c containerdConfig) {
	pending, loaded := []string{p.ContainerdConfig}, map[string]bool{}
	for len(pending) > 0 && c.err == nil {
		path := pending[0]
		pending = pending[1:]
		switch {
		case loaded[path]:
			continue
		case len(loaded) == maxImports:
			c.err = fmt.Errorf("%s: more than %d imports", p.ContainerdConfig, maxImports)
			continue
		}
		loaded[path] = true
		file, imports, err := loadContainerd(p.Root, path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == p.ContainerdConfig: // containerd uses its defaults
		case err != nil:
			c.read, c.err = true, err
		default:
			c.read = true
			c.files = append(c.files, file)
			pending = append(pending, imports...)
		}
	}
	return c
}

// loadContainerd reads a file, and returns its imports.
func loadContainerd(root, path string) (file loadedFile, imports []string, err error) {
	data, err := nodefile.Read(filepath.Join(root, path), maxFile)
	if err != nil {
		return file, nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := toml.Unmarshal(data, &file); err != nil {
		return file, nil, fmt.Errorf("%s: %w", path, outside.Syntax("TOML", err))
	}
	for _, name := range file.Imports {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		name = filepath.Clean(name)
		if !strings.Contains(name, "*") {
			imports = append(imports, name)
			continue
		}
		found, err := filepath.Glob(filepath.Join(root, name))
		if err != nil {
			return file, nil, fmt.Errorf("%s: imports: %s: %w", path, name, err)
		}
		for _, one := range found {
			imports = append(imports, "/"+strings.TrimPrefix(strings.TrimPrefix(one, filepath.Clean(root)), "/"))
		}
	}
	return file, imports, nil
}

// The plugins with the settings of images in versions 1, 2 and 3 (containerd 2.x) of the configuration.
const (
	criPlugin1     = "cri"
	criPlugin      = "io.containerd.grpc.v1.cri"
	imagesPlugin   = "io.containerd.cri.v1.images"
	transferPlugin = "io.containerd.transfer.v1.local"
)

// merged returns the plugins as in containerd 2.x: each file of an older version is migrated, and a later file changes
// a table key by key.
func (c containerdConfig) merged() map[string]any {
	all := map[string]any{}
	for _, file := range c.files {
		mergeTables(all, file.migrated())
	}
	return all
}

// migrated returns the plugins of a file by their names in version 4.
func (f loadedFile) migrated() map[string]any {
	plugins := maps.Clone(f.Plugins)
	if f.Version >= 4 {
		return plugins
	}
	if cri, is := plugins[criPlugin1]; is && f.Version < 2 {
		plugins[criPlugin] = cri
	}
	cri := tableOf(plugins[criPlugin])
	if cri == nil {
		return plugins
	}
	images := map[string]any{}
	maps.Copy(images, tableOf(plugins[imagesPlugin]))
	moved := func(from map[string]any, keys ...string) {
		for _, key := range keys {
			if value, is := from[key]; is {
				images[key] = value
			}
		}
	}
	moved(cri, "registry", "max_concurrent_downloads", "image_pull_with_sync_fs")
	if containerd := tableOf(cri["containerd"]); containerd["runtimes"] != nil { // else containerd does not migrate it
		moved(containerd, "disable_snapshot_annotations", "discard_unpacked_layers")
	}
	plugins[imagesPlugin] = images
	return plugins
}

// replaced returns the table of the CRI plugin as in containerd 1.x: the last version in a file determines the plugin's
// name, and a later file replaces its whole table. It returns false for a configuration that 1.x rejects.
func (c containerdConfig) replaced() (cri map[string]any, runs bool) {
	version, plugins := 1, map[string]any{}
	for _, file := range c.files {
		if file.Version != 0 {
			version = file.Version
		}
		maps.Copy(plugins, file.Plugins)
	}
	if version < 2 {
		return tableOf(plugins[criPlugin1]), true
	}
	for name := range plugins {
		if version > 2 || strings.Count(name, ".") < 3 {
			return nil, false
		}
	}
	return tableOf(plugins[criPlugin]), version == 2
}

// mergeTables merges from into a table, key by key.
func mergeTables(to, from map[string]any) {
	for key, value := range from {
		table, isTable := value.(map[string]any)
		if own, is := to[key].(map[string]any); is && isTable {
			mergeTables(own, table)
			continue
		}
		if isTable {
			own := map[string]any{}
			mergeTables(own, table)
			value = own
		}
		to[key] = value
	}
}

// settingOf returns the value of a setting from a table; nil if there is none. containerd also accepts other spellings
// of the names of its settings, but not of names that people choose, such as hosts.
type settingOf func(table map[string]any, name string) any

// anyCase matches names as the TOML parser of containerd 2.x: in any case.
func anyCase(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if strings.EqualFold(key, name) {
			return table[key]
		}
	}
	return nil
}

// lowerOrUpper matches names as the TOML parser of containerd 1.x: in lower case, else in upper case.
func lowerOrUpper(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	return table[strings.ToUpper(name)]
}
