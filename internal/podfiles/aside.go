// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
)

// SetAside takes a file out of kubelet's sight, which ends its pod, if it still
// is what was read, else release.ErrConflict: in the same directory it becomes
// `.NAME.image-update-agent-aside`, and kubelet passes over dot-names. Write
// (was.Data nil) gives kubelet a new file in its place; PutBack ends it in any
// case, also after an error.
func (f *Files) SetAside(ctx context.Context, was node.PodFile) error {
	if was.Err != nil || was.Data == nil {
		return fmt.Errorf("podfiles: %s: not set aside: it was not read", was.Name)
	}
	err := f.change(ctx, was, func(dir *atomicfile.Dir, expect *atomicfile.File) error {
		return dir.SetAside(was.Name, *expect)
	})
	return wrap(goneIsConflict(was.Name, err))
}

// PutBack ends every setting-aside, whoever began it, and returns the names
// that kubelet sees again, sorted. A file that was written under its name
// meanwhile is never replaced: the one set aside is removed. It may be repeated,
// and called by several processes at once. Names may come together with an
// error, which is about others.
func (f *Files) PutBack(ctx context.Context) (names []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := atomicfile.OpenDir(f.dirs.PodManifests)
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

// goneIsConflict is for those to whom a file that is gone is not what was asked
// for.
func goneIsConflict(name string, err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%s: %w: gone", name, release.ErrConflict)
	}
	return err
}
