// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// Write applies a change. containerd reads one complete file or the other at any time. Write returns
// nodefile.ErrConflict for a file that was changed since the change was computed. After an interruption it can be
// computed and written again: remains are removed first, except the kept file of an earlier version, which nothing
// reads any more.
func (c Change) Write() error {
	if c.IsNone() {
		return nil
	}
	err := c.refused()
	if err == nil {
		err = c.write()
	}
	if err != nil {
		return fmt.Errorf("local registry: %s: %w", c.Registry, err)
	}
	return nil
}

// refused returns why a change may be shown, and not written.
func (c Change) refused() error {
	if c.Position == localregistry.Off || c.IsNone() || !c.place.isGenerated() {
		return nil
	}
	return &RefusedError{c.File, "another program writes it: make that program write what enable shows without --write"}
}

func (c Change) write() (err error) {
	if err := os.MkdirAll(filepath.Dir(c.place.dir), 0o755); err != nil {
		return err
	}
	dir, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := dir.Sweep(); err != nil { // what a killed run has left
		return err
	}
	p := c.place
	if c.After == nil {
		return c.remove(dir)
	}
	options := nodefile.Options{Mode: 0o644, Expect: &p.was}
	if p.like.Exists() {
		options.Like = &p.like
	}
	if _, err := dir.Write(hostsTOML, c.After, options); err != nil {
		return err
	}
	if p.kept.Exists() {
		return dir.Remove(keptFile, &p.kept)
	}
	return c.show()
}

// open opens the directory of the registry; a new one under a name that containerd ignores. A user who cannot read the
// source's directory cannot read the new one.
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
	if err := sweepHidden(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Mkdir(hidden, 0o700); err != nil {
		return nil, err
	}
	if err := c.giveAccess(hidden); err != nil {
		return nil, errors.Join(err, os.Remove(hidden))
	}
	return nodefile.OpenDir(hidden)
}

// giveAccess gives a new directory the mode and owner of the source's directory.
func (c Change) giveAccess(dir string) error {
	mode := fs.FileMode(0o755)
	if c.place.like.Exists() {
		info, err := os.Stat(c.place.sourceDir)
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			mode = info.Mode().Perm()
			if err := giveTo(dir, stat); err != nil {
				return err
			}
		}
	}
	return os.Chmod(dir, mode)
}

// giveTo changes the owner of a directory where it is another one: the daemon's unit may not call chown.
func giveTo(dir string, like *syscall.Stat_t) error {
	var is syscall.Stat_t
	if err := syscall.Stat(dir, &is); err != nil || is.Uid == like.Uid && is.Gid == like.Gid {
		return err
	}
	return os.Chown(dir, int(like.Uid), int(like.Gid))
}

// hidden returns the hidden name of the registry's directory, used while it has no file: containerd would use an empty
// directory, and not _default.
func (c Change) hidden() string {
	return filepath.Join(filepath.Dir(c.place.dir), hiddenName(filepath.Base(c.place.dir)))
}

func hiddenName(name string) string { return "." + name + ".image-update-agent" }

// sweepHidden removes the hidden directory of a killed run. It refuses one with any other file than a hosts.toml and
// temporary ones: a person has put that there.
func sweepHidden(path string) error {
	dir, err := nodefile.OpenDir(path)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sweep(), dir.Close()); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != hostsTOML || !entry.Type().IsRegular() {
			return &RefusedError{path, "has a name that image-update-agent uses, but not its content: rename the file"}
		}
	}
	return os.RemoveAll(path)
}

// show renames a new directory to its name.
func (c Change) show() error {
	if c.place.hadDir {
		return nil
	}
	return rename(c.hidden(), c.place.dir)
}

// remove removes the hosts.toml, and the directory that was created for it, unless it contains other files.
func (c Change) remove(dir *nodefile.Dir) error {
	names, err := os.ReadDir(c.place.dir)
	if err != nil {
		return err
	}
	if c.place.from == fromNothing || len(names) != 1 {
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

// rename renames a directory of certs.d, never over another one, and syncs certs.d.
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
