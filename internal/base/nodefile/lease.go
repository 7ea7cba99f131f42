// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lease is a read lease on an open file. The kernel grants it only while no process has the file open for writing, and
// blocks processes that open it for writing until the lease ends (at most /proc/sys/fs/lease-break-time seconds; it is
// held for a comparison and a rename). Go's runtime ignores the SIGIO that announces a waiting writer; check queries
// the lease instead.
type lease struct {
	handle *os.File
	held   bool
}

// takeLease returns ErrConflict if a process has the file open for writing. On a filesystem without leases (NFS, FUSE)
// it returns a lease without effect.
func takeLease(handle *os.File) (lease, error) {
	_, err := control(handle, func(fd int) (int, error) {
		return unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	})
	switch {
	case err == nil:
		return lease{handle: handle, held: true}, nil
	case errors.Is(err, unix.EAGAIN):
		return lease{}, fmt.Errorf("%w: open for writing", ErrConflict)
	}
	return lease{handle: handle}, nil
}

// check returns ErrConflict if a writer waits for the end of the lease.
func (l lease) check() error {
	if !l.held {
		return nil
	}
	kind, err := control(l.handle, func(fd int) (int, error) {
		return unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
	})
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	if kind != unix.F_RDLCK {
		return fmt.Errorf("%w: about to be written", ErrConflict)
	}
	return nil
}
