// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// WantedFile is the name of the list of registries in the state directory. Only enable and disable write it.
const WantedFile = "local-registry-wanted.json"

const (
	wantedVersion = 1
	maxWanted     = 64 << 10 // bytes
)

// wantedFile is the file.
type wantedFile struct {
	SchemaVersion int                    `json:"schemaVersion"`
	Registries    []localregistry.Wanted `json:"registries"` // sorted by registry, without duplicates
}

// Memory stores the registries for which the local registry was enabled. Other programs (k3s, RKE2, an admin's
// templates) overwrite hosts.toml files, and only this list then shows that the local registry was removed. It
// implements localregistry.Memory.
type Memory struct {
	Dir        string // the state directory
	Registries Registries
}

var _ localregistry.Memory = Memory{}

// Wanted returns the enabled registries, sorted by registry; none if the file does not exist. An unusable file is an
// error.
func (m Memory) Wanted() ([]localregistry.Wanted, error) {
	path := filepath.Join(m.Dir, WantedFile)
	data, err := nodefile.Read(path, maxWanted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var wanted []localregistry.Wanted
	if err == nil {
		wanted, err = parseWanted(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return wanted, nil
}

func parseWanted(data []byte) ([]localregistry.Wanted, error) {
	var file wantedFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&file); err != nil || decoder.More() {
		return nil, errors.New("not a list of registries in JSON") // the cause quotes the file
	}
	if file.SchemaVersion != wantedVersion {
		return nil, fmt.Errorf("version %d, want %d", file.SchemaVersion, wantedVersion)
	}
	for n, w := range file.Registries {
		switch {
		case CheckRegistry(w.Registry) != nil, !filepath.IsAbs(w.File),
			w.Position != localregistry.Fallback && w.Position != localregistry.Gate,
			n > 0 && compareWanted(file.Registries[n-1], w) >= 0:
			return nil, fmt.Errorf("registry %d: not what `local-registry enable` writes", n)
		}
	}
	return file.Registries, nil
}

func compareWanted(a, b localregistry.Wanted) int { return strings.Compare(a.Registry, b.Registry) }

// Enabled records that the local registry is enabled for a registry. It reports whether that is a change. The caller
// holds the lock.
func (m Memory) Enabled(w localregistry.Wanted) (changed bool, err error) {
	return m.update(func(all []localregistry.Wanted) []localregistry.Wanted {
		at, has := slices.BinarySearchFunc(all, w, compareWanted)
		if has {
			all[at] = w
			return all
		}
		return slices.Insert(all, at, w)
	})
}

// Disabled removes a registry. It reports whether it was recorded. The caller holds the lock.
func (m Memory) Disabled(registry string) (changed bool, err error) {
	return m.update(func(all []localregistry.Wanted) []localregistry.Wanted {
		return slices.DeleteFunc(all, func(w localregistry.Wanted) bool { return w.Registry == registry })
	})
}

// CarryOut writes a change, and remembers or forgets that it is wanted. A crash in between leaves a local registry that
// is remembered and not there: status says so. The caller holds the lock.
func (m Memory) CarryOut(c Change) (remembered bool, err error) {
	if c.Position == localregistry.Off {
		if err := c.Write(); err != nil {
			return false, err
		}
		return m.Disabled(c.Registry)
	}
	if err := c.refused(); err != nil {
		return false, err
	}
	remembered, err = m.Enabled(localregistry.Wanted{Registry: c.Registry, Position: c.Position, File: c.File})
	if err != nil {
		return false, err
	}
	return remembered, c.Write()
}

// update changes the list. The caller holds the lock.
func (m Memory) update(change func([]localregistry.Wanted) []localregistry.Wanted) (changed bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot record what is enabled: %w", err)
		}
	}()
	dir, err := nodefile.OpenDir(m.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	was, err := dir.Read(WantedFile, maxWanted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	var all []localregistry.Wanted
	if was.Exists() {
		if all, err = parseWanted(was.Data); err != nil {
			return false, fmt.Errorf("%s: %w: remove the file, and enable the registries again", filepath.Join(m.Dir,
				WantedFile), err)
		}
	}
	next := change(slices.Clone(all))
	if slices.Equal(all, next) {
		return false, nil
	}
	data, err := json.MarshalIndent(wantedFile{wantedVersion, append([]localregistry.Wanted{}, next...)}, "", "  ")
	if err != nil {
		return false, err
	}
	_, err = dir.Write(WantedFile, append(data, '\n'), nodefile.Options{Mode: 0o644, Expect: &was})
	return err == nil, err
}

// Why returns what happened to the hosts.toml that named the local registry.
func (m Memory) Why(w localregistry.Wanted, now localregistry.Position) string {
	found, err := m.Registries.Of(context.Background(), w.Registry)
	switch {
	case err != nil:
		return err.Error()
	case found.Error != "" && found.Position != localregistry.Off && found.Position != w.Position:
		return found.File + " names it as " + string(found.Position) + "; " + found.Error
	case found.Error != "":
		return cmp.Or(found.File, w.File) + ": " + found.Error
	case !slices.Contains(m.Registries.Dirs, filepath.Dir(filepath.Dir(w.File))):
		return fmt.Sprintf("it is in %s, but containerd reads %s", w.File, strings.Join(m.Registries.Dirs, ", "))
	case found.File == "" || filepath.Base(filepath.Dir(found.File)) == defaultDir && found.Position == localregistry.Off:
		return w.File + " is gone"
	case found.Position == localregistry.Off:
		return found.File + " no longer names it: another program or a person has written the file"
	case found.Position != w.Position:
		return found.File + " names it as " + string(found.Position)
	case now == localregistry.Off:
		return "containerd does not read " + found.File
	default:
		return fmt.Sprintf("%s names it as %s, but containerd uses it as %s", found.File, found.Position, now)
	}
}

// Remedy returns how to fix a registry that has lost the local registry.
func Remedy(w localregistry.Wanted) string {
	return EnableCommand(w) + "; " +
		"if another program writes the file (k3s and RKE2 at each start), make that program name " +
		localregistry.URL + "; " +
		"if you no longer want it: image-update-agent local-registry disable " + w.Registry + " --write"
}

// EnableCommand returns the command that names the local registry as wanted.
func EnableCommand(w localregistry.Wanted) string {
	gate := ""
	if w.Position == localregistry.Gate {
		gate = " --gate"
	}
	return "image-update-agent local-registry enable " + w.Registry + gate + " --write"
}

// lockFile is locked by the process that enables or disables the local registry.
const lockFile = "local-registry-wanted.lock"

// lockPatience is how long Lock waits: such a process ends within seconds.
const lockPatience = time.Minute

// Lock keeps other processes from enabling or disabling the local registry until unlock is called or the process ends.
// Each of them reads files and then replaces them, and would undo a change made in between. It waits for at most
// lockPatience.
func (m Memory) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", m.Dir, nodefile.Plain(err))
	}
	if unlock, err = nodefile.Lock(ctx, filepath.Join(m.Dir, lockFile), lockPatience); err != nil {
		return nil, fmt.Errorf("enable or disable the local registry: %w", err)
	}
	return unlock, nil
}
