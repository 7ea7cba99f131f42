// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LockedError reports that another process has the lock.
type LockedError struct {
	Path string
	PID  int  // the process that the file names; 0: none
	Open bool // that process was seen to have the file open
}

func (e *LockedError) Error() string {
	switch {
	case e.PID == 0:
		return e.Path + ": locked by another process"
	case !e.Open:
		return fmt.Sprintf("%s: locked by another process; the file names process %d", e.Path, e.PID)
	}
	return fmt.Sprintf("%s: locked by process %d", e.Path, e.PID)
}

// lockAgain is the time between two attempts to lock.
const lockAgain = 5 * time.Millisecond

// Lock locks the file at path with flock(2), and creates it if needed. It waits at most `patience` for another process,
// then it returns a *LockedError. The lock ends with unlock or with the process. Any user who can open a file can lock
// it for ever, so a file that others can open is ErrUnsafe, and a directory is never locked.
func Lock(ctx context.Context, path string, patience time.Duration) (unlock func(), err error) {
	d, err := openAny(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.lock(ctx, filepath.Base(path), patience)
}

func (d *Dir) lock(ctx context.Context, name string, patience time.Duration) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		file, err := d.tryLock(name)
		if err == nil {
			// For people: on a full disk it is not written, and the lock still holds.
			_ = file.Truncate(0)
			_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			return func() { release(file) }, nil
		}
		if _, locked := errors.AsType[*LockedError](err); !locked {
			return nil, fmt.Errorf("lock %s: %w", d.path(name), err)
		}
		select {
		case <-time.After(lockAgain):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", err, cause)
			}
			return nil, err
		}
	}
}

// release ends a lock also where a process that is being started still has a copy of the file, until its exec.
func release(file *os.File) {
	_ = file.Truncate(0)
	_, _ = control(file, func(fd int) (int, error) {
		return 0, unix.Flock(fd, unix.LOCK_UN) //nolint:forbidigo // ends it
	})
	_ = file.Close()
}

// tryLock does not wait. A file that lost its name before it was locked is no lock.
func (d *Dir) tryLock(name string) (*os.File, error) {
	for {
		file, err := d.openLock(name)
		if err != nil {
			return nil, err
		}
		_, err = control(file, func(fd int) (int, error) {
			return 0, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) //nolint:forbidigo // others cannot open it
		})
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = lockedBy(file)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		mine, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if named, err := d.root.Lstat(name); err == nil && os.SameFile(mine, named) {
			return file, nil
		}
		_ = file.Close()
	}
}

func (d *Dir) openLock(name string) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := control(d.self, func(dir int) (int, error) { return unix.Openat(dir, name, flags, 0o600) })
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), d.path(name))
	info, err := file.Stat()
	if err == nil {
		err = checkKind(info)
	}
	if err == nil {
		err = safeOwner(info)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%w: mode %#o: others may lock it (chmod go=)", ErrUnsafe, info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lockedBy says who has locked the file, as far as that is seen. The process may be just writing its number, and one
// that was killed has left its own.
func lockedBy(file *os.File) *LockedError {
	var data [32]byte
	n, _ := file.ReadAt(data[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data[:n])))
	if err != nil || pid <= 0 {
		return &LockedError{Path: file.Name()}
	}
	return &LockedError{Path: file.Name(), PID: pid, Open: hasOpen(pid, file)}
}

// hasOpen reports whether a process was seen to have the file open.
func hasOpen(pid int, file *os.File) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	path := fmt.Sprintf("/proc/%d/fd", pid)
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			if info, err := os.Stat(filepath.Join(path, name)); err == nil && os.SameFile(info, mine) {
				return true
			}
		}
		if err != nil { // also at the end
			return false
		}
	}
}
