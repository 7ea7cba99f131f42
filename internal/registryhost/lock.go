// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/wait"
)

// lockFile is locked with flock(2) by the process that enables or disables the local registry. Only root can open it.
const lockFile = "local-registry-wanted.lock"

const (
	lockInterval = 10 * time.Millisecond // between two attempts
	lockPatience = time.Minute           // such a process ends within seconds
)

// Lock keeps other processes from enabling or disabling the local registry until unlock is called or the process ends.
// Each of them reads files and then replaces them, and would undo a change made in between. It waits for at most
// lockPatience.
func (m Memory) Lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(m.Dir, lockFile)
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, nodefile.Plain(err))
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, nodefile.Plain(err))
	}
	if err := await(ctx, file); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // the lock ends with the handle
}

func await(ctx context.Context, file *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, fmt.Errorf("still locked after %s", lockPatience))
	defer cancel()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if err := wait.For(ctx, lockInterval); err != nil {
			return fmt.Errorf("another process is enabling or disabling the local registry: %w", err)
		}
	}
}
