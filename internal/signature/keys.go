// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/outside"
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
				fmt.Fprintf(stamps, "%s %s\n", name, identity(name))
			}
		}
	}
	return files, stamps.String()
}

// identity changes with a file's content: the time of its last change of any kind
// cannot be set back.
func identity(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(stat.Dev, stat.Ino, stat.Mode, stat.Uid, stat.Size, stat.Mtim, stat.Ctim)
	}
	return fmt.Sprint(info.Mode(), info.Size(), info.ModTime().UnixNano())
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
		one, err := readKey(file)
		if err != nil {
			k.log.WarnContext(ctx, "signature key does not count", "file", file, "error", err)
			continue
		}
		k.log.InfoContext(ctx, "signature key loaded", "file", file, "kind", one.kind, "key", one.fingerprint)
		found = append(found, one)
	}
	return found
}

// readKey reads a file with one public key. Without O_NONBLOCK, a FIFO would be
// waited for without end.
func readKey(name string) (key, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return key{}, plain(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return key{}, plain(err)
	}
	if !info.Mode().IsRegular() {
		return key{}, fmt.Errorf("not a regular file: %s", info.Mode().Type())
	}
	if err := trusted(info); err != nil {
		return key{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return key{}, plain(err)
	}
	if len(data) > maxKeyFile {
		return key{}, fmt.Errorf("too large: over %d bytes", maxKeyFile)
	}
	return parseKey(data)
}

// trusted refuses a file that somebody else than root and we could have written:
// whose key counts would be their decision.
func trusted(info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("mode %#o: others may write", info.Mode().Perm())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
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

// plain takes the path out of an error: the log has it.
func plain(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return at.Err
	}
	return err
}
