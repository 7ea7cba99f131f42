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

	"github.com/kubic-project/image-update-agent/internal/atomicfile"
)

// ErrLocked tells that another agent works on this state directory; the error's
// text names its process.
var ErrLocked = errors.New("locked by another agent")

// lockFile is locked with flock(2), which ends with the process that holds it.
// The file stays; its content is the holder's process id, for people.
const lockFile = "lock"

// Lock keeps a second agent out until unlock is called or the process ends. It
// does not wait. Under the lock it sweeps away the temporary files that a
// crash left in the two directories.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := makeDir(s.stateDir)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	defer func() { _ = dir.Close() }()
	file, err := lock(filepath.Join(s.stateDir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if err := s.sweep(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("state: %w", err), file.Close())
	}
	return func() {
		// Both are for the next one's convenience: the lock ends with the handle.
		_ = file.Truncate(0)
		_ = file.Close()
	}, nil
}

func (s *Store) sweep(stateDir *atomicfile.Dir) error {
	runtimeDir, err := makeDir(s.runtimeDir)
	if err != nil {
		return err
	}
	defer func() { _ = runtimeDir.Close() }()
	return errors.Join(stateDir.Sweep(), runtimeDir.Sweep())
}

func lock(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return lockDirectory(filepath.Dir(path)) // a full disk, and no agent was here before
	}
	if err != nil {
		return nil, err
	}
	if err := take(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, nil
}

// lockDirectory takes the directory for the lock file that there is no room for.
func lockDirectory(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%s: %w: process unknown", path, ErrLocked), dir.Close())
	case err != nil:
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func take(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", atomicfile.ErrUnsafe)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: process %s", ErrLocked, holder(file))
	}
	if err != nil {
		return err
	}
	// For people only: on a full disk it stays unwritten, and the lock holds.
	_ = file.Truncate(0)
	_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return nil
}

// holder reads who has the lock; it may just be writing that.
func holder(file io.ReaderAt) string {
	var data [32]byte
	n, _ := file.ReadAt(data[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data[:n])))
	if err != nil {
		return "unknown"
	}
	return strconv.Itoa(pid)
}
