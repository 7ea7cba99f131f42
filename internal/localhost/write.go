// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// Write carries a change out. containerd reads one whole file or the other at any time, and a file that was changed
// since the change was made is nodefile.ErrConflict. After an interruption it can be made and written again: what
// that has left is removed first.
func (c Change) Write() error {
	if c.IsNone() {
		return nil
	}
	if err := c.write(); err != nil {
		return fmt.Errorf("own host: %s: %w", c.Registry, err)
	}
	return nil
}

func (c Change) write() (err error) {
	parent := filepath.Dir(c.place.dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	unlock, err := sweep(parent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	dir, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	p := c.place
	if c.Position != ownhost.Off { //nolint:nestif // three files in the order in which they are safe
		if p.from == fromAside && !p.ours && !p.aside.Exists() {
			kept := nodefile.Options{Like: &p.was, Expect: &nodefile.File{}}
			if _, err := dir.Write(fromAside, p.was.Data, kept); err != nil {
				return err
			}
		}
		options := nodefile.Options{Mode: 0o644, Expect: &p.was}
		if p.like.Exists() {
			options.Like = &p.like
		}
		if _, err := dir.Write(hostsTOML, c.After, options); err != nil {
			return err
		}
		return c.show()
	}
	if c.After == nil {
		return c.remove(dir)
	}
	if _, err := dir.Write(hostsTOML, c.After, nodefile.Options{Like: &p.aside, Expect: &p.was}); err != nil {
		return err
	}
	return dir.Remove(fromAside, &p.aside)
}

// open opens the directory of the registry; a new one under a name that containerd does not look for. Who may not read
// the directory of what the file is made from, may not read the new one.
func (c Change) open() (*nodefile.Dir, error) {
	if exists(c.place.dir) {
		if !c.place.hadDir {
			return nil, fmt.Errorf("%s: %w: created meanwhile", c.place.dir, nodefile.ErrConflict)
		}
		return nodefile.OpenDir(c.place.dir)
	}
	if c.place.hadDir {
		return nil, fmt.Errorf("%s: %w: gone", c.place.dir, nodefile.ErrConflict)
	}
	hidden := c.hidden()
	err := os.Mkdir(hidden, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil, &RefusedError{hidden, "has a name of image-update-agent's own, and content that is not: rename it"}
	}
	if err != nil {
		return nil, err
	}
	if err := c.giveAccess(hidden); err != nil {
		return nil, errors.Join(err, os.Remove(hidden))
	}
	return nodefile.OpenDir(hidden)
}

// giveAccess gives a new directory the mode and owner of the one that its file is made from.
func (c Change) giveAccess(dir string) error {
	mode := fs.FileMode(0o755)
	if c.place.like.Exists() {
		info, err := os.Stat(c.place.sourceDir)
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			mode = info.Mode().Perm()
			if err := os.Chown(dir, int(stat.Uid), int(stat.Gid)); err != nil {
				return err
			}
		}
	}
	return os.Chmod(dir, mode)
}

// hidden is the directory of the registry before it has its file, and after it has lost it: containerd would take an
// empty one, and not _default.
func (c Change) hidden() string {
	return filepath.Join(filepath.Dir(c.place.dir), hiddenName(filepath.Base(c.place.dir)))
}

// show gives a new directory its name.
func (c Change) show() error {
	if c.place.hadDir {
		return nil
	}
	return rename(c.hidden(), c.place.dir)
}

// remove removes the hosts.toml, and with it the directory that was made for it, unless something else is in it.
func (c Change) remove(dir *nodefile.Dir) error {
	names, err := os.ReadDir(c.place.dir)
	if err != nil {
		return err
	}
	if c.place.head.from == fromNothing || len(names) != 1 {
		return dir.Remove(hostsTOML, &c.place.was)
	}
	if err := rename(c.place.dir, c.hidden()); err != nil {
		return err
	}
	if err := dir.Remove(hostsTOML, &c.place.was); err != nil {
		return errors.Join(err, rename(c.hidden(), c.place.dir))
	}
	return os.Remove(c.hidden())
}

// rename renames a directory of certs.d, never over another one, and syncs that.
func rename(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	parent, err := os.Open(filepath.Dir(to))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
