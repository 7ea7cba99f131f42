// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// The places of the configuration, below the root.
const (
	vendorFile = "/usr/share/image-update-agent/config.yaml"
	adminFile  = "/etc/image-update-agent/config.yaml"
	dropIns    = "/etc/image-update-agent/config.d"
)

// IntervalVariable is the environment's name for interval; it wins over the files. Empty is as good as unset, as in a
// sysconfig file.
const IntervalVariable = "UPDATE_POLLING_INTERVAL"

const (
	maxFile    = 1 << 20 // bytes of a configuration file
	maxDropIns = 256
)

// Sources are where the configuration comes from.
type Sources struct {
	// Root is the directory that stands for "/": of the files read here, and of every path in the Settings. Empty is the
	// host's own.
	Root string
	// File, if set, is read in place of the admin's file and drop-ins. It is not below Root, and it must exist.
	File string
	// Env looks up the environment, as os.LookupEnv does; nil is an empty one.
	Env func(name string) (string, bool)
}

// Config is a configuration that was read and is valid.
type Config struct {
	Settings Settings
	// Files are those that were read, the first lowest.
	Files []string
	shown *yaml.Node // every value as written, with its origin
}

// Load reads, merges and validates. Its error has one line for each problem.
func Load(from Sources) (*Config, error) {
	w := newWalker(from.Root)
	node := nodeValues(from.Root)
	for _, n := range node {
		w.offer(n)
	}
	var read []string
	for _, path := range w.files(from) {
		data, err := trustedfile.Read(path, maxFile)
		isDropIn := filepath.Dir(path) == from.Root+dropIns
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != from.File && !isDropIn:
		case err != nil:
			w.add(path, 0, err)
		default:
			w.read(path, data)
			read = append(read, path)
		}
	}
	if from.Env != nil {
		if value, _ := from.Env(IntervalVariable); value != "" {
			w.set("interval", "environment "+IntervalVariable, value)
		}
	}
	if len(w.problems) == 0 {
		for _, n := range node {
			w.resolve(n)
		}
	}
	return w.config(read)
}

var errSuffix = errors.New("not read for its name, want the suffix .yaml, or a leading dot to set it aside")

// files lists the configuration's files, the lowest first.
func (w *walker) files(from Sources) []string {
	vendor := from.Root + vendorFile
	if from.File != "" {
		return []string{vendor, from.File}
	}
	files := []string{vendor, from.Root + adminFile}
	dir := from.Root + dropIns
	entries, err := os.ReadDir(dir) // sorted by name
	if err == nil && len(entries) > maxDropIns {
		entries, err = nil, fmt.Errorf("more than %d files", maxDropIns)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.add(dir, 0, atomicfile.Plain(err))
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."): // an editor's or a package manager's work in progress
		case !strings.HasSuffix(name, ".yaml"):
			w.add(path, 0, errSuffix)
		default:
			files = append(files, path)
		}
	}
	return files
}
