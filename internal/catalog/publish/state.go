// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	maxState = 1 << 20 // bytes of the file of versions
	// lockTime is how long another process may have the file.
	lockTime = 30 * time.Second
)

// stateFile remembers the highest version of each channel that was read, so that a registry cannot hide it later. The
// zero value remembers nothing.
type stateFile struct{ path string }

// seen is the content of the file: catalog, channel, version.
type seen struct {
	Catalogs map[string]map[string]seenVersion `json:"catalogs"`
}

type seenVersion struct {
	Version uint64        `json:"version"`
	Digest  digest.Digest `json:"digest"`
}

// note refuses a version below the highest one, and notes a higher one if that counts: with keys, one that they signed.
// No other process changes the file at the same time.
func (f stateFile) note(ctx context.Context, name, channel string, v Version, counts bool) error {
	if f.path == "" {
		return nil
	}
	lock := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".lock")
	unlock, err := nodefile.Lock(ctx, lock, lockTime)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer unlock()
	all, err := f.load()
	if err != nil {
		return err
	}
	switch known := all.Catalogs[name][channel]; {
	case known.Version > v.Version:
		return refuse(KindOlder, channel, "the channel went back from %d to %d: %s has version %d",
			known.Version, v.Version, f.path, known.Version)
	case known.Version == v.Version, !counts:
		return nil
	}
	if all.Catalogs == nil {
		all.Catalogs = map[string]map[string]seenVersion{}
	}
	if all.Catalogs[name] == nil {
		all.Catalogs[name] = map[string]seenVersion{}
	}
	all.Catalogs[name][channel] = seenVersion{v.Version, v.Digest}
	return f.save(all)
}

// load reads the file; one that is not there is empty.
func (f stateFile) load() (seen, error) {
	data, err := readFile(filepath.Dir(f.path), filepath.Base(f.path), maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return seen{}, nil
	}
	if err != nil {
		return seen{}, fmt.Errorf("state: %w", err)
	}
	var all seen
	if err := json.Unmarshal(data, &all); err != nil {
		return seen{}, &Error{
			Kind: KindInput, Object: f.path, Text: "not a file of versions", Err: outside.Error(err),
		}
	}
	return all, nil
}

// save writes the file as a whole, for the same users.
func (f stateFile) save(all seen) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer func() { _ = os.Remove(next.Name()) }() // gone when it was renamed
	like := nodefile.File{Mode: 0o644, UID: -1, GID: -1}
	if old, err := nodefile.Access(f.path); err == nil {
		like = old
	}
	if next.Chown(like.UID, like.GID) != nil {
		like = like.ForThisUser()
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Chmod(like.Mode), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}
