// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

// maxImports bounds the files that a configuration of containerd may import.
const maxImports = 64

// containerdConfig is containerd's configuration with all that it imports, as the two generations of containerd merge
// it (LoadConfig and mergeConfig of their server/config): a later file wins, 2.x merges the tables of a plugin key by
// key, 1.x replaces the whole table of the plugin. Nothing is imported that no file names.
type containerdConfig struct {
	read     bool           // there is a configuration
	merged   map[string]any // plugins as containerd 2.x has them
	replaced map[string]any // plugins as containerd 1.x has them
	err      error          // what could not be read: containerd may have something else
}

// readContainerd reads the configuration of a platform.
func readContainerd(p platform.Platform) containerdConfig {
	c := containerdConfig{merged: map[string]any{}, replaced: map[string]any{}}
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
		imports, err := c.load(p.Root, path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == p.ContainerdConfig: // containerd runs with its defaults
		case err != nil:
			c.read, c.err = true, err
		default:
			c.read = true
			pending = append(pending, imports...)
		}
	}
	return c
}

// load merges a file, and returns the files that it imports.
func (c *containerdConfig) load(root, path string) (imports []string, err error) {
	data, err := nodefile.Read(filepath.Join(root, path), maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var file struct {
		Imports []string       `toml:"imports"`
		Plugins map[string]any `toml:"plugins"`
	}
	if err := toml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	maps.Copy(c.replaced, file.Plugins)
	mergeTables(c.merged, file.Plugins)
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
			return nil, fmt.Errorf("%s: imports: %s: %w", path, name, err)
		}
		for _, one := range found {
			imports = append(imports, "/"+strings.TrimPrefix(strings.TrimPrefix(one, filepath.Clean(root)), "/"))
		}
	}
	return imports, nil
}

// mergeTables puts what from says into a table, key by key. What is empty there changes nothing.
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
		if value != "" || to[key] == nil {
			to[key] = value
		}
	}
}
