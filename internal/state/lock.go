// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// ErrLocked: another agent uses this state directory; the text names its process.
var ErrLocked = errors.New("locked by another agent")

// lockFile is locked with flock(2), and so is its directory, which works even on a full disk. Both locks end with their
// process. The file contains the process id, for people.
const lockFile = "lock"

// Lock keeps other agents out until unlock is called or the process ends. It does not wait. It removes the temporary
// files that a crash left in the two directories.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := makeDir(s.stateDir)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	defer func() { _ = dir.Close() }()
	unlock, err = lock(filepath.Join(s.stateDir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if err := s.sweep(dir); err != nil {
		unlock()
		return nil, fmt.Errorf("state: %w", err)
	}
	return unlock, nil
}

func (s *Store) sweep(stateDir *nodefile.Dir) error {
	runtimeDir, err := makeDir(s.runtimeDir)
	if err != nil {
		return err
	}
	defer func() { _ = runtimeDir.Close() }()
	return errors.Join(stateDir.Sweep(), runtimeDir.Sweep())
}

func lock(path string) (unlock func(), err error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		file, err = nil, nil // a full disk, and no lock file: the directory is locked
	}
	if err == nil {
		err = take(dir, file)
	}
	if err != nil {
		_, _ = dir.Close(), file.Close()
		return nil, fmt.Errorf("%s: %w", path, nodefile.Plain(err))
	}
	// For people only: on a full disk it is not written, and the lock still holds.
	_ = file.Truncate(0)
	_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() {
		// The locks end with the handles.
		_, _, _ = file.Truncate(0), file.Close(), dir.Close()
	}, nil
}

// take locks the directory and the file. Either may be nil if it does not exist.
func take(dir, file *os.File) error {
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", nodefile.ErrUnsafe)
	}
	for _, each := range []*os.File{dir, file} {
		if each == nil {
			continue
		}
		err := unix.Flock(int(each.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%w: process %s", ErrLocked, holder(file))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holder returns the process id in the file; the process may be just writing it.
func holder(file io.ReaderAt) string {
	var data [32]byte
	n, _ := file.ReadAt(data[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data[:n])))
	if err != nil {
		return "unknown"
	}
	return strconv.Itoa(pid)
}
