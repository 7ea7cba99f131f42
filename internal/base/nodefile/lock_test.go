// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lockShared locks a path as `flock -s` does, which needs only the permission to read it.
func lockShared(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_SH)) //nolint:forbidigo // the other user
}

func TestALockIsHeldByOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, 0)
	require.NoError(t, err)
	_, err = Lock(t.Context(), path, 0)
	require.EqualError(t, err, fmt.Sprintf("%s: locked by process %d", path, os.Getpid()))
	unlock()

	unlock, err = Lock(t.Context(), path, 0)
	require.NoError(t, err)
	free := make(chan error, 1)
	go func() {
		again, err := Lock(context.WithoutCancel(t.Context()), path, time.Hour)
		if err == nil {
			again()
		}
		free <- err
	}()
	unlock()
	require.NoError(t, <-free, "it waits")
}

// A process that is being started has copies of all files until its exec, also of a lock that ends meanwhile.
func TestALockEndsWhileAProcessStarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, 0)
	require.NoError(t, err)
	fd := copyOf(t, path)
	defer func() { _ = unix.Close(fd) }()
	unlock()
	unlock, err = Lock(t.Context(), path, 0)
	require.NoError(t, err)
	unlock()
}

// copyOf returns a copy of this process's descriptor of a file.
func copyOf(t *testing.T, path string) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, file := range files {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", file.Name())); err == nil && name == path {
			fd, err := strconv.Atoi(file.Name())
			require.NoError(t, err)
			fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			return fd
		}
	}
	require.FailNow(t, "not open", path)
	return -1
}

// The holder is named only if that process was seen to have the file open.
func TestTheHolderOfALock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, 0)
	require.NoError(t, err)
	defer unlock()
	for text, want := range map[string]string{
		"":                        path + ": locked by another process",
		"evil\nREADY=1":           path + ": locked by another process",
		"-1\n":                    path + ": locked by another process",
		"4194999\n":               path + ": locked by another process; the file names process 4194999",
		fmt.Sprintln(os.Getpid()): fmt.Sprintf("%s: locked by process %d", path, os.Getpid()),
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Lock(t.Context(), path, 0)
		assert.EqualError(t, err, want)
	}
}

// Between the opening of the file and its lock, the holder may have removed it: such a lock excludes nobody who comes
// later.
func TestALockedFileThatLostItsNameIsNoLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held := make(chan struct{}, 1)
	var locked sync.WaitGroup
	for range 4 {
		locked.Go(func() {
			for range 500 {
				unlock, err := Lock(t.Context(), path, time.Hour)
				if !assert.NoError(t, err) {
					return
				}
				select {
				case held <- struct{}{}:
				default:
					assert.Fail(t, "two have the lock")
				}
				<-held
				assert.NoError(t, os.Remove(path))
				unlock()
			}
		})
	}
	locked.Wait()
}

func TestWhatOthersCanOpenIsNotLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	put(t, path, "")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := Lock(t.Context(), path, 0)
		require.ErrorIs(t, err, ErrUnsafe)
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("other", path))
	_, err := Lock(t.Context(), path, 0)
	require.ErrorIs(t, err, unix.ELOOP)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err = Lock(t.Context(), path, 0)
	require.ErrorIs(t, err, ErrUnsafe)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = Lock(t.Context(), path, 0)
	require.ErrorIs(t, err, unix.EISDIR)
}
