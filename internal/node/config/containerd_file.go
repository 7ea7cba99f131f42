// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
