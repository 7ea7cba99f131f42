// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// WantedFile is the name of the list of registries in the state directory. Only enable and disable write it.
const WantedFile = "localhost-wanted.json"

const (
	wantedVersion = 1
	maxWanted     = 64 << 10 // bytes
)

// wantedFile is the file.
type wantedFile struct {
	SchemaVersion int              `json:"schemaVersion"`
	Registries    []ownhost.Wanted `json:"registries"` // sorted by registry, each once
}

// Memory remembers for which registries the own host was enabled. Other programs (k3s, RKE2, an admin's templates)
// write hosts.toml files anew, and then nothing else says that the own host is missed. It implements ownhost.Memory.
type Memory struct {
	Dir        string // the state directory
	Registries Registries
}

var _ ownhost.Memory = Memory{}

// Wanted returns what was enabled, sorted by registry. Nothing was enabled where the file does not exist; one that
// cannot be used is an error.
func (m Memory) Wanted() ([]ownhost.Wanted, error) {
	path := filepath.Join(m.Dir, WantedFile)
	data, err := nodefile.Read(path, maxWanted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	wanted, err := parseWanted(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return wanted, nil
}

func parseWanted(data []byte) ([]ownhost.Wanted, error) {
	var file wantedFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&file); err != nil || decoder.More() {
		return nil, errors.New("no JSON of a list of registries") // the cause has bytes of the file
	}
	if file.SchemaVersion != wantedVersion {
		return nil, fmt.Errorf("version %d, want %d", file.SchemaVersion, wantedVersion)
	}
	for n, w := range file.Registries {
		switch {
		case CheckRegistry(w.Registry) != nil, !filepath.IsAbs(w.File),
			w.Position != ownhost.Fallback && w.Position != ownhost.Gate,
			n > 0 && compareWanted(file.Registries[n-1], w) >= 0:
			return nil, fmt.Errorf("registry %d: not what `localhost enable` writes", n)
		}
	}
	return file.Registries, nil
}

func compareWanted(a, b ownhost.Wanted) int { return strings.Compare(a.Registry, b.Registry) }

// Enabled remembers that the own host is enabled for a registry. It reports whether that was not known. The caller has
// the lock.
func (m Memory) Enabled(w ownhost.Wanted) (changed bool, err error) {
	return m.update(func(all []ownhost.Wanted) []ownhost.Wanted {
		at, has := slices.BinarySearchFunc(all, w, compareWanted)
		if has {
			all[at] = w
			return all
		}
		return slices.Insert(all, at, w)
	})
}

// Disabled forgets a registry. It reports whether it was known. The caller has the lock.
func (m Memory) Disabled(registry string) (changed bool, err error) {
	return m.update(func(all []ownhost.Wanted) []ownhost.Wanted {
		return slices.DeleteFunc(all, func(w ownhost.Wanted) bool { return w.Registry == registry })
	})
}

// update changes the list. The caller has the lock.
func (m Memory) update(change func([]ownhost.Wanted) []ownhost.Wanted) (changed bool, err error) {
	if changed, err = m.tryUpdate(change); err != nil {
		return false, fmt.Errorf("what is enabled is not remembered: %w", err)
	}
	return changed, nil
}

func (m Memory) tryUpdate(change func([]ownhost.Wanted) []ownhost.Wanted) (changed bool, err error) {
	dir, err := nodefile.OpenDir(m.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	was, err := dir.Read(WantedFile, maxWanted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	var all []ownhost.Wanted
	if was.Exists() {
		if all, err = parseWanted(was.Data); err != nil {
			return false, fmt.Errorf("%s: %w: remove it, and enable again what is wanted", filepath.Join(m.Dir, WantedFile), err)
		}
	}
	next := change(slices.Clone(all))
	if slices.Equal(all, next) {
		return false, nil
	}
	data, err := json.MarshalIndent(wantedFile{wantedVersion, append([]ownhost.Wanted{}, next...)}, "", "  ")
	if err != nil {
		return false, err
	}
	_, err = dir.Write(WantedFile, append(data, '\n'), nodefile.Options{Mode: 0o644, Expect: &was})
	return err == nil, err
}

// Why says what has become of the hosts.toml that named the own host.
func (m Memory) Why(w ownhost.Wanted, now ownhost.Position) string {
	found, err := m.Registries.Of(context.Background(), w.Registry)
	switch {
	case err != nil:
		return err.Error()
	case found.Error != "":
		return cmp.Or(found.File, w.File) + " cannot be used: " + found.Error
	case !slices.Contains(m.Registries.Dirs, filepath.Dir(filepath.Dir(w.File))):
		return fmt.Sprintf("it stands in %s, and containerd reads %s", w.File, strings.Join(m.Registries.Dirs, ", "))
	case found.File == "" || filepath.Base(filepath.Dir(found.File)) == defaultDir && found.Position == ownhost.Off:
		return w.File + " is gone"
	case found.Position == ownhost.Off:
		return found.File + " does not name it any more: another program or a person has written it"
	case found.Position != w.Position:
		return found.File + " names it as " + string(found.Position)
	case now == ownhost.Off:
		return "containerd does not follow " + found.File
	default:
		return fmt.Sprintf("%s names it as %s, and containerd asks it as %s", found.File, found.Position, now)
	}
}

// Remedy is what to do about a registry that has lost the own host.
func Remedy(w ownhost.Wanted) string {
	gate := ""
	if w.Position == ownhost.Gate {
		gate = " --gate"
	}
	return "image-update-agent localhost enable " + w.Registry + gate + " --write; " +
		"where another program writes the file anew (k3s and RKE2 at each start), have that one name " + ownhost.URL + "; " +
		"if it is not wanted any more: image-update-agent localhost disable " + w.Registry + " --write"
}
