// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// lockFile is locked in both directories: a full disk may have no room for that of the state directory.
const lockFile = "lock"

// Lock keeps other agents out until unlock is called or the process ends: they get a *nodefile.LockedError. It does not
// wait. It removes the temporary files that a crash left in the two directories.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var unlocks []func()
	release := func() {
		for _, each := range unlocks {
			each()
		}
	}
	defer func() {
		if err != nil {
			release()
			err = fmt.Errorf("state: %w", err)
		}
	}()
	var dirs []*nodefile.Dir
	defer func() {
		for _, dir := range dirs {
			_ = dir.Close()
		}
	}()
	for _, path := range []string{s.runtimeDir, s.stateDir} {
		dir, err := makeDir(path)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
		one, err := nodefile.Lock(ctx, filepath.Join(path, lockFile), 0)
		if path == s.stateDir && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		unlocks = append(unlocks, one)
	}
	for _, dir := range dirs {
		err = errors.Join(err, dir.Sweep())
	}
	return release, err
}
