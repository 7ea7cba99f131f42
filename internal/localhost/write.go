// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
)

// Write carries a change out. containerd reads one whole file or the other at any time, and a file that was changed
// since the change was made is atomicfile.ErrConflict. After an interruption it can be made and written again.
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
	dir, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	p := c.place
	if c.Position != ownhost.Off {
		if p.from == fromAside && !p.ours && !p.aside.Exists() {
			kept := atomicfile.Options{Mode: p.was.Mode, Expect: &atomicfile.File{}}
			if _, err := dir.Write(fromAside, p.was.Data, kept); err != nil {
				return err
			}
		}
		if _, err := dir.Write(hostsTOML, c.After, atomicfile.Options{Mode: 0o644, Expect: &p.was}); err != nil {
			return err
		}
		return c.show()
	}
	if c.After == nil {
		return c.remove(dir)
	}
	if _, err := dir.Write(hostsTOML, c.After, atomicfile.Options{Expect: &p.was}); err != nil {
		return err
	}
	return dir.Remove(fromAside, &p.aside)
}

// open opens the directory of the registry; a new one under a name that containerd does not look for.
func (c Change) open() (*atomicfile.Dir, error) {
	if exists(c.place.dir) {
		return atomicfile.OpenDir(c.place.dir)
	}
	hidden := c.hidden()
	if err := os.RemoveAll(hidden); err != nil { // left by an interruption
		return nil, err
	}
	if err := os.MkdirAll(hidden, 0o755); err != nil {
		return nil, err
	}
	return atomicfile.OpenDir(hidden)
}

// hidden is the directory of the registry before it has its file, and after it has lost it: containerd would take an
// empty one, and not _default.
func (c Change) hidden() string {
	return filepath.Join(filepath.Dir(c.place.dir), "."+filepath.Base(c.place.dir)+".image-update-agent")
}

// show gives a new directory its name.
func (c Change) show() error {
	if exists(c.place.dir) {
		return nil
	}
	return rename(c.hidden(), c.place.dir)
}

// remove removes the hosts.toml, and with it the directory that was made for it, unless somebody put something into it.
func (c Change) remove(dir *atomicfile.Dir) error {
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

// rename renames a directory of certs.d and syncs that.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
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
