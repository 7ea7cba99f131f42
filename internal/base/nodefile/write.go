// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options control Write.
type Options struct {
	// Mode has the permission bits of a new file, independent of the umask; 0 means 0600. An existing file keeps its
	// own.
	Mode fs.FileMode
	// Expect makes the write a compare-and-swap: the file must still be that one (the zero File: it must not exist),
	// else Write returns ErrConflict. nil: any safe file is replaced.
	Expect *File
	// Like gives the file the mode, owner and labels of another one, whether it is new or replaced: only users who can
	// read the original may read the copy. nil: Mode counts.
	Like *File
	// Differs says that the content differs: Write does not read the old one.
	Differs bool
}

// unknownGroup is how the kernel shows a group that is not mapped in the process's user namespace (user_namespaces(7),
// /proc/sys/kernel/overflowgid).
const unknownGroup = 65534

// Write replaces the content of the file with that name. It does not write equal bytes, and returns false for written.
// An error with written true means that the new content is in place, but a power failure may still undo it, because the
// directory could not be synced.
func (d *Dir) Write(name string, data []byte, opts Options) (written bool, err error) {
	defer d.tell(&err, "write", name)
	if err := CheckName(name); err != nil {
		return false, err
	}
	old, err := d.replaced(name, len(data), opts)
	if err != nil {
		return false, err
	}
	if old.Exists() && old.Data != nil && bytes.Equal(old.Data, data) && (opts.Like == nil || old.SameAccess(*opts.Like)) {
		return false, nil
	}
	if opts.Like != nil {
		old.Mode, old.UID, old.GID, old.labels = opts.Like.Mode, opts.Like.UID, opts.Like.GID, opts.Like.labels
	}
	temp, err := d.writeTemporary(name, data, old)
	if err != nil {
		return false, err
	}
	// The order matters: content on disk before its name, or a power failure leaves an empty file under the name; the
	// name on disk before Write returns.
	if err := d.place(temp, name, opts.Expect); err != nil {
		return false, errors.Join(err, d.root.Remove(temp))
	}
	return true, d.self.Sync()
}

// replaced returns the file that data will replace, or the attributes of a new one. Its Data is nil if it is longer
// than size, the length of the new content.
func (d *Dir) replaced(name string, size int, opts Options) (File, error) {
	limit := int64(size)
	if opts.Expect != nil {
		limit = max(limit, int64(len(opts.Expect.Data)))
	}
	handle, old, err := d.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		old = File{Mode: opts.Mode.Perm(), UID: os.Geteuid(), GID: -1}
		if old.Mode == 0 {
			old.Mode = 0o600
		}
		return old, expected(File{}, opts.Expect)
	}
	if err != nil {
		return File{}, err
	}
	defer handle.Close()
	if opts.Differs && opts.Expect == nil {
		return old, nil
	}
	if err := old.load(handle, limit); err != nil && !errors.Is(err, ErrTooLarge) {
		return File{}, err
	}
	return old, expected(old, opts.Expect)
}

// expected compares the current file with the expected one.
func expected(now File, expect *File) error {
	switch {
	case expect == nil || now.Same(*expect):
		return nil
	case !now.Exists():
		return fmt.Errorf("%w: gone", ErrConflict)
	case !expect.Exists():
		return fmt.Errorf("%w: created meanwhile", ErrConflict)
	}
	return ErrConflict
}

// writeTemporary writes and syncs the file that will be renamed to name, with the attributes of old, and returns its
// temporary name. On error it removes the file.
//
// This process does not fork meanwhile: until its exec, a child would have the file open for writing, and the next
// lease on it would fail.
func (d *Dir) writeTemporary(name string, data []byte, old File) (string, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temp := temporaryName(name)
	// O_EXCL never follows a symlink; not accessible to other users until it is complete.
	handle, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", Plain(err)
	}
	err = fill(handle, data, old)
	if closeErr := handle.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", errors.Join(Plain(err), d.root.Remove(temp))
	}
	return temp, nil
}

func fill(handle *os.File, data []byte, old File) error {
	if _, err := handle.Write(data); err != nil {
		return err
	}
	now, err := attributes(handle)
	if err != nil {
		return err
	}
	// Only if it differs: without CAP_CHOWN the call would fail. In a user namespace, all unmapped groups look the same
	// and cannot be set: there the failure is wanted, because otherwise the group of the file would change.
	if now.UID != old.UID || old.GID >= 0 && now.GID != old.GID || old.GID == unknownGroup {
		if err := handle.Chown(old.UID, old.GID); err != nil {
			return fmt.Errorf("keep owner %d:%d: %w", old.UID, old.GID, Plain(err))
		}
	}
	if err := writeLabels(handle, old.labels); err != nil {
		return err
	}
	if err := handle.Chmod(old.Mode); err != nil {
		return err
	}
	return handle.Sync()
}

// place renames the temporary file to its name.
func (d *Dir) place(temp, name string, expect *File) error {
	if expect != nil && !expect.Exists() {
		err := d.renameNew(temp, name)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: created meanwhile", ErrConflict)
		}
		return err
	}
	return d.ifUnchanged(name, expect, func() error { return d.root.Rename(temp, name) })
}

// ifUnchanged calls act if the file is safe and still the expected one (nil: any, or none), while holding a lease on
// it.
func (d *Dir) ifUnchanged(name string, expect *File, act func() error) error {
	d.swap.Lock()
	defer d.swap.Unlock()
	handle, now, err := d.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := expected(File{}, expect); err != nil {
			return err
		}
		return act()
	}
	if err != nil {
		return err
	}
	defer handle.Close() // also ends the lease
	if expect == nil {
		return act()
	}
	lease, err := takeLease(handle)
	if err != nil {
		return err
	}
	if err := now.load(handle, int64(len(expect.Data))); errors.Is(err, ErrTooLarge) {
		return ErrConflict
	} else if err != nil {
		return err
	}
	if err := expected(now, expect); err != nil {
		return err
	}
	if err := lease.check(); err != nil {
		return err
	}
	return act()
}

// temporaryName returns a name that kubelet ignores because of its dot, and that its suffix distinguishes from other
// programs' files. A long name is cut to fit NAME_MAX.
func temporaryName(name string) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails, according to its documentation
	end := ".image-update-agent-" + hex.EncodeToString(random[:])
	return "." + name[:min(len(name), maxName-1-len(end))] + end
}

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
