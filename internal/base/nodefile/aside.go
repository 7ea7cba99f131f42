// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// asideEnd is the suffix of the dot-name of a file that is set aside: `.NAME` and this. It does not match temporary
// names, so Sweep leaves it.
const asideEnd = ".image-update-agent-aside"

// asidePatience limits how long SetAside and PutBack wait for a lock of another process.
const asidePatience = 10 * time.Second

// SetAside hides the file under a dot-name in the same directory if it is still expect, else it returns ErrConflict. It
// renames the file, so mode, owner, labels and times stay, and syncs the directory. It replaces an older copy, left
// from before the file was last written. It returns ErrName for a name that is too long for its dot-name (more than 229
// bytes), and ErrUnsafe if the dot-name exists and is not a safe file.
//
// After an error of the sync the file is set aside: PutBack also restores it.
func (d *Dir) SetAside(name string, expect File) (err error) {
	defer d.tell(&err, "set aside", name)
	if err := CheckName(name); err != nil {
		return err
	}
	hidden := asideName(name)
	if len(hidden) > maxName {
		return fmt.Errorf("%.64q: %w: its dot-name has more than %d bytes", name, ErrName, maxName)
	}
	if expect.GID == unknownGroup || expect.labels[labelAccess] != "" {
		// Better now than when the pod is down: perhaps no file in its place can be for the same users.
		temp, err := d.writeTemporary(name, nil, expect)
		if err == nil {
			err = d.root.Remove(temp)
		}
		if err != nil {
			return err
		}
	}
	defer d.lockAside()()
	if err := d.safe(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", hidden, err)
	}
	err = d.ifUnchanged(name, &expect, func() error {
		// By POSIX, a rename onto a second link to the same file does nothing; renameNew may leave one.
		if err := d.root.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return d.root.Rename(name, hidden)
	})
	if err != nil {
		return err
	}
	return d.self.Sync()
}

// Aside returns mode, owner and labels of the file that was set aside under this name; fs.ErrNotExist if there is none.
func (d *Dir) Aside(name string) (File, error) {
	if err := CheckName(name); err != nil {
		return File{}, err
	}
	handle, file, err := d.open(asideName(name))
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", d.path(asideName(name)), err)
	}
	return file, handle.Close()
}

// AllAside returns the names of the files that are set aside, sorted.
func (d *Dir) AllAside() ([]string, error) {
	names, err := d.names(func(hidden string) bool { return SetAsideName(hidden) != "" })
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.root.Name(), err)
	}
	for n, hidden := range names {
		names[n] = SetAsideName(hidden)
	}
	return names, nil
}

// PutBack restores all files in the directory that were set aside and returns their names, sorted. If the name exists
// again, it is not touched: if it is a regular file, the copy is superfluous and removed; otherwise (a directory, a
// symlink) the copy may be the only one, so it is kept and an error is returned, as for a dot-name that is not a safe
// file. An error with one name does not affect the others. The directory is synced.
//
// It is idempotent, and may be called by several processes, also concurrently with SetAside: every step is one rename
// that succeeds for only one of them. Killed at any point, it leaves the complete file under its name or its dot-name,
// or, if the name exists again, a temporary file for Sweep.
func (d *Dir) PutBack() (back []string, err error) {
	aside, err := d.names(func(hidden string) bool { return SetAsideName(hidden) != "" })
	if err != nil {
		return nil, fmt.Errorf("put back %s: %w", d.root.Name(), err)
	}
	if len(aside) == 0 {
		return nil, nil
	}
	defer d.lockAside()()
	var errs []error
	for _, hidden := range aside {
		name := SetAsideName(hidden)
		was, err := d.putBack(hidden, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("put back %s: %w", d.path(name), err))
		}
		if was {
			back = append(back, name)
		}
	}
	errs = append(errs, d.self.Sync())
	slices.Sort(back)
	return back, errors.Join(errs...)
}

// asideLock is locked while files are set aside and put back. It is removed before it is unlocked.
const asideLock = ".image-update-agent-aside.lock"

// lockAside prevents other processes from setting aside and putting back in this directory until unlock is called:
// otherwise a copy that one of them is about to put back could have become the older one of two. A pod must come back:
// callers wait at most asidePatience, and a full disk or a filesystem without locks gives none.
func (d *Dir) lockAside() (unlock func()) {
	d.aside.Lock()
	release, err := d.lock(context.Background(), asideLock, asidePatience)
	if err != nil {
		return d.aside.Unlock
	}
	return func() {
		_ = d.root.Remove(asideLock)
		release()
		d.aside.Unlock()
	}
}

// putBack reports whether the file was restored. A missing dot-name was restored by another process.
func (d *Dir) putBack(hidden, name string) (bool, error) {
	err := d.safe(hidden)
	if err == nil {
		err = d.renameNew(hidden, name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s: %w", hidden, err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrExist):
		return d.discard(hidden, name)
	}
	return err == nil, err
}

// discard removes the copy of a file whose name exists again, or puts it back if the name is gone meanwhile.
func (d *Dir) discard(hidden, name string) (bool, error) {
	info, err := d.root.Lstat(name)
	if err == nil {
		err = checkKind(info)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("in its place: %w", Plain(err))
	}
	// Rename it first: at any moment the dot-name may become that of the only copy, because the file may be set aside
	// again.
	own := temporaryName(name)
	if err := d.root.Rename(hidden, own); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if _, err := d.root.Lstat(name); err == nil {
		return false, d.root.Remove(own)
	}
	err = d.renameNew(own, name)
	return err == nil, err
}

// renameNew renames a file to a new name, or returns fs.ErrExist. On a filesystem without that operation it creates a
// second link; if it is killed before removing the first one, the file has both names and is complete under each.
func (d *Dir) renameNew(from, to string) error {
	_, err := control(d.self, func(dir int) (int, error) {
		return 0, unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	})
	// EINVAL comes from the filesystem, ENOSYS from a kernel before 3.15.
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := d.root.Link(from, to); err != nil {
		return err
	}
	if err := d.root.Remove(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// safe rejects a name that is not a file accepted by the package. It opens nothing.
func (d *Dir) safe(name string) error {
	info, err := d.root.Lstat(name)
	if err != nil {
		return Plain(err)
	}
	if err := checkKind(info); err != nil {
		return err
	}
	return safeOwner(info)
}

func asideName(name string) string { return "." + name + asideEnd }

// SetAsideName returns the name of the file set aside under this dot-name, empty if it is not one of SetAside's.
func SetAsideName(hidden string) string {
	name, dot := strings.CutPrefix(hidden, ".")
	name, end := strings.CutSuffix(name, asideEnd)
	if !dot || !end || CheckName(name) != nil {
		return ""
	}
	return name
}
