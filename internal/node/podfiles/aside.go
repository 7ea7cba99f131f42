// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// SetAside hides a file from kubelet, which then ends its pod: it renames the file to `.NAME.image-update-agent-aside`
// if it is still as read, else it returns release.ErrConflict. Write (was.Data nil) creates a new file in its place;
// PutBack restores it, also after an error.
func (f *Files) SetAside(ctx context.Context, was node.PodFile) error {
	if was.Err != nil || was.Data == nil {
		return fmt.Errorf("podfiles: %s: cannot set aside a file that was not read", was.Name)
	}
	err := f.change(ctx, was, func(dir *nodefile.Dir, expect *nodefile.File) error {
		return dir.SetAside(was.Name, *expect)
	})
	return wrap(goneIsConflict(was.Name, err))
}

// PutBack restores all files that any process set aside, and returns their names, sorted; with an error, those that it
// could restore. If there is a new file with the name, PutBack removes the one that was set aside. It is idempotent,
// and safe for concurrent use by several processes.
func (f *Files) PutBack(ctx context.Context) (names []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := nodefile.OpenDir(f.dirs.PodManifests)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err)
	}
	defer func() { _ = dir.Close() }()
	names, err = dir.PutBack()
	return names, wrap(err)
}

// Aside returns the names of the files that are set aside and have no new file in their place, sorted: their pods are
// gone.
func (f *Files) Aside(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := nodefile.OpenDir(f.dirs.PodManifests)
	if err != nil {
		return nil, wrap(err)
	}
	defer func() { _ = dir.Close() }()
	aside, err := dir.AllAside()
	if err != nil {
		return nil, wrap(err)
	}
	present, err := dir.List()
	gone := slices.DeleteFunc(aside, func(name string) bool { return slices.Contains(present, name) })
	return gone, wrap(err)
}

// goneIsConflict converts errGone to release.ErrConflict.
func goneIsConflict(name string, err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%s: %w: gone", name, release.ErrConflict)
	}
	return err
}
