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

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// keys are the public keys of some directories, kept until a file changes.
type keys struct {
	dirs []string
	log  *slog.Logger

	mu    sync.Mutex
	stamp string
	ring  ring
}

// current looks at the files, reads them if they changed, and gives the keys;
// ErrNoKeys where there is none.
func (k *keys) current(ctx context.Context) (ring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	files, stamp := k.look()
	if stamp != k.stamp {
		k.ring = k.read(ctx, files)
		k.stamp = stamp
	}
	if len(k.ring) == 0 {
		return nil, fmt.Errorf("%w: no *.pem in %s is one", ErrNoKeys, strings.Join(k.dirs, ", "))
	}
	return k.ring, nil
}

// look lists the files, and stamps them: another stamp, other content. What
// cannot be looked at has its error for a stamp, so that it is told once.
func (k *keys) look() (files []string, stamp string) {
	stamps := new(strings.Builder)
	for _, dir := range k.dirs {
		entries, err := os.ReadDir(dir)
		fmt.Fprintf(stamps, "%s %v\n", dir, err)
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			if filepath.Ext(name) == ".pem" {
				files = append(files, name)
				stamp := ""
				info, err := os.Stat(name)
				if err == nil {
					stamp = trustedfile.Stamp(info)
				}
				fmt.Fprintf(stamps, "%s %s %v\n", name, stamp, err)
			}
		}
	}
	return files, stamps.String()
}

// read reads the keys of the files. One that is broken costs only itself.
func (k *keys) read(ctx context.Context, files []string) ring {
	for _, dir := range k.dirs {
		if _, err := os.ReadDir(dir); err != nil {
			k.log.WarnContext(ctx, "directory of signature keys cannot be read", "error", err)
		}
	}
	if len(files) > maxKeyFiles {
		k.log.WarnContext(ctx, "too many files of signature keys: the rest does not count",
			"files", len(files), "limit", maxKeyFiles)
		files = files[:maxKeyFiles]
	}
	var found ring
	for _, file := range files {
		data, err := trustedfile.Read(file, maxKeyFile)
		var one key
		if err == nil {
			one, err = parseKey(data)
		}
		if err != nil {
			k.log.WarnContext(ctx, "signature key does not count", "file", file, "error", err)
			continue
		}
		k.log.InfoContext(ctx, "signature key loaded", "file", file, "kind", one.kind, "key", one.fingerprint)
		found = append(found, one)
	}
	return found
}

// parseKey reads the one public key of a PEM file. With a second one, it would
// depend on the reader which of them counts.
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
