// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// asideEnd ends the dot-name of a file that is set aside: `.NAME` and this. It
// is none of the temporary names, so Sweep leaves it.
const asideEnd = ".image-update-agent-aside"

// asidePatience is how long a lock of another process keeps SetAside and PutBack waiting.
const asidePatience = 10 * time.Second

// SetAside hides the file under a dot-name of the same directory, if it still
// is that one, else ErrConflict. It is renamed, so mode, owner, labels and
// times stay; the directory is synced. An older copy that was set aside before
// the file was written anew is replaced. A name that leaves the dot-name no
// room (more than 229 bytes) is ErrName; something else than a safe file under
// the dot-name is ErrUnsafe.
//
// After an error of the sync the file is aside: PutBack ends that as well.
func (d *Dir) SetAside(name string, expect File) error {
	if err := d.setAside(name, expect); err != nil {
		return fmt.Errorf("set aside %s: %w", d.path(name), err)
	}
	return nil
}

func (d *Dir) setAside(name string, expect File) error {
	if err := CheckName(name); err != nil {
		return err
	}
	hidden := asideName(name)
	if len(hidden) > maxName {
		return fmt.Errorf("%.64q: %w: its dot-name has more than %d bytes", name, ErrName, maxName)
	}
	defer d.lockAside()()
	if err := d.safe(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", hidden, err)
	}
	err := d.ifUnchanged(name, &expect, func() error {
		// A rename onto a second link to the same file does nothing, says POSIX;
		// renameNew may leave one.
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

// PutBack ends every setting-aside in the directory and returns the names that
// came back, sorted. Where something has the name again, it stays as it is: a
// regular file there makes the copy superfluous, and it is removed; beside
// anything else (a directory, a symlink) the copy is kept, for it may be the
// only one, and that is an error, as is a dot-name that is no safe file. An
// error with one name keeps no other from being put back. The directory is
// synced.
//
// It may be called again, and by several processes, also beside SetAside:
// every step is one rename that succeeds for one of them. Killed anywhere, it
// leaves the whole file under its name or its dot-name, or, beside a file that
// has the name, a temporary file for Sweep.
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

// lockAside keeps other processes from setting aside and putting back in this
// directory until unlock is called: a copy that one of them is about to put back may
// have become the older one of two. Whoever can read the directory can take the lock,
// so no caller waits for it longer than asidePatience. A file system without locks has
// none.
func (d *Dir) lockAside() (unlock func()) {
	d.aside.Lock()
	flock := func(how int) error {
		_, err := control(d.self, func(dir int) (int, error) { return 0, unix.Flock(dir, how) })
		return err
	}
	again, enough := time.NewTicker(5*time.Millisecond), time.NewTimer(asidePatience)
	defer again.Stop()
	defer enough.Stop()
	for waits := true; waits && errors.Is(flock(unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK); {
		select {
		case <-again.C:
		case <-enough.C:
			waits = false
		}
	}
	return func() {
		_ = flock(unix.LOCK_UN) // without the lock it does nothing
		d.aside.Unlock()
	}
}

// putBack tells whether the file has come back. A dot-name that is gone was
// another process's.
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

// discard removes the copy of a file whose name is in use again, or puts it
// back if that has ended meanwhile.
func (d *Dir) discard(hidden, name string) (bool, error) {
	info, err := d.root.Lstat(name)
	if err == nil {
		err = checkKind(info)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("in its place: %w", Plain(err))
	}
	// Under a name of our own first: the dot-name may become that of the only
	// copy at any moment, since the file may be set aside anew.
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

// renameNew renames a file to a name that nothing has, else fs.ErrExist. A file
// system that cannot do that in one step gets a second link; killed before the
// first one is gone, the file has both names, and is whole under each.
func (d *Dir) renameNew(from, to string) error {
	_, err := control(d.self, func(dir int) (int, error) {
		return 0, unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	})
	// EINVAL is the file system's word, ENOSYS that of a kernel before 3.15.
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

// safe refuses a name that is not a file as the package accepts it. Nothing is
// opened.
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

// SetAsideName returns the name of the file that was set aside under this dot-name,
// empty if it is not one that SetAside gives.
func SetAsideName(hidden string) string {
	name, dot := strings.CutPrefix(hidden, ".")
	name, end := strings.CutSuffix(name, asideEnd)
	if !dot || !end || CheckName(name) != nil {
		return ""
	}
	return name
}
