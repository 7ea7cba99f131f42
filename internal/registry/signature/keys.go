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

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// keys caches the public keys of directories until a file changes.
type keys struct {
	dirs  []string
	given ring // instead of dirs
	log   *slog.Logger

	require int // how many different ones there must be

	mu    sync.Mutex
	stamp string
	ring  ring
}

// current returns the keys, read again if a file changed; ErrNoKeys or ErrFewKeys if it cannot verify with
// them.
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
		return nil, fmt.Errorf("%w: no valid *.pem file in %s", ErrNoKeys, strings.Join(k.dirs, ", "))
	}
	if n := len(k.ring.fingerprints()); n < k.require {
		return nil, fmt.Errorf("%w: %d in %s, want %d", ErrFewKeys, n, strings.Join(k.dirs, ", "), k.require)
	}
	return k.ring, nil
}

// stampOf returns a stamp that changes with the files. It includes errors, so that each is logged once.
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
			k.log.WarnContext(ctx, "cannot read a directory of signature keys", "error", f.Err)
		default:
			k.log.WarnContext(ctx, "signature key ignored", "file", f.Path, "error", f.Err)
		}
	}
	return found
}

// KeyFile is a file with a public key, or an unreadable directory of such files.
type KeyFile struct {
	Path  string
	IsDir bool
	Err   error // why it is ignored

	key key
}

// String names the file with the kind and the fingerprint of its key.
func (f KeyFile) String() string { return f.Path + " (" + f.key.kind + ", " + f.key.fingerprint + ")" }

// KeyFiles reads the keys in directories, including ignored ones.
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
				f.Err = fmt.Errorf("too many files: only the first %d are used", maxKeyFiles)
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

// parseKey parses the public key of a PEM file. A second one would be ambiguous.
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
