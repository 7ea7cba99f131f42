// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// hiddenEnd is the suffix of the agent's hidden directories in certs.d, scratchStart the prefix of those in the
// directory for temporary files.
const (
	hiddenEnd    = ".image-update-agent"
	scratchStart = ".image-update-agent-hosts-"
)

func hiddenName(name string) string { return "." + name + hiddenEnd }

// lockDir locks a directory that only its owner can open.
func lockDir(path string) (lock *os.File, free bool, err error) {
	if lock, err = os.Open(path); err != nil {
		return nil, false, err
	}
	conn, err := lock.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			free = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) == nil //nolint:forbidigo // others cannot open it
		})
	}
	if err != nil {
		return nil, false, errors.Join(err, lock.Close())
	}
	return lock, free, nil
}

// sweep removes the remains of killed runs in a directory of certs.d. The caller holds Memory.Lock.
func sweep(certsD string) error {
	entries, err := os.ReadDir(certsD)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(certsD, entry.Name())
		switch {
		case !entry.IsDir():
			continue
		case strings.HasPrefix(entry.Name(), ".") && strings.HasSuffix(entry.Name(), hiddenEnd):
			err = sweepHidden(path)
		default:
			err = sweepFiles(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepFiles removes the agent's temporary files from the directory of a registry. It skips a directory that other
// users may write to.
func sweepFiles(path string) (err error) {
	dir, err := nodefile.OpenDir(path)
	if errors.Is(err, nodefile.ErrUnsafe) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Sweep()
}

// sweepHidden removes a hidden directory that contains at most a hosts.toml. Any other was not made by the agent.
func sweepHidden(path string) error {
	if err := sweepFiles(path); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	switch {
	case len(entries) > 1 || len(entries) == 1 && (entries[0].Name() != hostsTOML || !entries[0].Type().IsRegular()):
		return nil
	case len(entries) == 1:
		err = os.Remove(filepath.Join(path, hostsTOML))
	}
	return errors.Join(err, os.Remove(path))
}

// scratchDir creates a private directory for this process, after removing those of killed processes. done removes it.
func scratchDir() (path string, done func() error, err error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), scratchStart+"*"))
	if err != nil {
		return "", nil, fmt.Errorf("directory for temporary files: %w", err)
	}
	for _, path := range old {
		if err := sweepScratch(path); err != nil {
			return "", nil, err
		}
	}
	for range scratchTries {
		if path, err = os.MkdirTemp("", scratchStart); err != nil {
			return "", nil, err
		}
		lock, free, err := lockDir(path)
		if err == nil && free && exists(path) {
			return path, func() error { return errors.Join(os.RemoveAll(path), lock.Close()) }, nil
		}
		if err == nil {
			err = lock.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
	}
	return "", nil, errors.New("directory for temporary files: another process removes what is made there")
}

// scratchTries: another process may remove a directory that is not locked yet.
const scratchTries = 20

// sweepScratch removes the directory of a process that has ended: the agent made it, and no process has it locked.
func sweepScratch(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return nil //nolint:nilerr // it is gone, or not the agent's
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return nil
	}
	lock, free, err := lockDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if free {
		err = os.RemoveAll(path)
	}
	return errors.Join(err, lock.Close())
}
