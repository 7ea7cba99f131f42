// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// keys caches the public keys of some directories until a file changes.
type keys struct {
	dirs  []string
	given ring // in place of dirs
	log   *slog.Logger

	mu    sync.Mutex
	stamp string
	ring  ring
}

// current returns the keys, read again if a file changed; ErrNoKeys if there is none.
func (k *keys) current(ctx context.Context) (ring, error) {
	if k.given != nil {
		return k.given, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if stamp := stampOf(k.dirs); stamp != k.stamp {
		k.ring = k.read(ctx)
		k.stamp = stamp
	}
	if len(k.ring) == 0 {
		return nil, fmt.Errorf("%w: no *.pem in %s is one", ErrNoKeys, strings.Join(k.dirs, ", "))
	}
	return k.ring, nil
}

// stampOf returns a stamp that changes with the files. It has the errors, too, so that each is
// logged once.
func stampOf(dirs []string) string {
	var stamps strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		fmt.Fprintf(&stamps, "%s %v\n", dir, err)
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			if filepath.Ext(name) == ".pem" {
				stamp := ""
				info, err := os.Stat(name)
				if err == nil {
					stamp = nodefile.Stamp(info)
				}
				fmt.Fprintf(&stamps, "%s %s %v\n", name, stamp, err)
			}
		}
	}
	return stamps.String()
}

// read reads the keys. It logs and skips broken files.
func (k *keys) read(ctx context.Context) ring {
	var found ring
	for _, f := range KeyFiles(k.dirs) {
		switch {
		case f.Err == nil:
			k.log.InfoContext(ctx, "signature key loaded", "file", f.Path, "kind", f.key.kind, "key", f.key.fingerprint)
			found = append(found, f.key)
		case f.IsDir:
			k.log.WarnContext(ctx, "directory of signature keys cannot be read", "error", f.Err)
		default:
			k.log.WarnContext(ctx, "signature key does not count", "file", f.Path, "error", f.Err)
		}
	}
	return found
}

// KeyFile is a file of a public key, or a directory of such files that cannot be read.
type KeyFile struct {
	Path  string
	IsDir bool
	Err   error // why it does not count

	key key
}

// String names the file with the kind and the fingerprint of its key.
func (f KeyFile) String() string { return f.Path + " (" + f.key.kind + ", " + f.key.fingerprint + ")" }

// KeyFiles reads the keys in directories, those that do not count too.
func KeyFiles(dirs []string) []KeyFile {
	var out []KeyFile
	count := 0
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			out = append(out, KeyFile{Path: dir, IsDir: true, Err: err})
		}
		for _, entry := range entries {
			f := KeyFile{Path: filepath.Join(dir, entry.Name())}
			if filepath.Ext(f.Path) != ".pem" {
				continue
			}
			if count++; count > maxKeyFiles {
				f.Err = fmt.Errorf("too many files: only %d count", maxKeyFiles)
				return append(out, f)
			}
			data, err := nodefile.Read(f.Path, maxKeyFile)
			if err == nil {
				f.key, err = parseKey(data)
			}
			f.Err = err
			out = append(out, f)
		}
	}
	return out
}

// parseKey reads the public key of a PEM file. A second one would be ambiguous.
func parseKey(data []byte) (key, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return key{}, errors.New("no PEM")
	}
	if block.Type != "PUBLIC KEY" {
		return key{}, fmt.Errorf("PEM of %q, not of %q", outside.Text(block.Type), "PUBLIC KEY")
	}
	if second, _ := pem.Decode(rest); second != nil {
		return key{}, errors.New("more than one PEM block")
	}
	return newKey(block.Bytes)
}
