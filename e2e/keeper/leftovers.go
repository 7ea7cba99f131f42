// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockName   = "keeper.lock"
	cgroupRoot = "/sys/fs/cgroup"
	// A cgroup stays busy for a moment after its last process was killed. cgroup v1 reports no event when it becomes
	// free, so the removal is tried again.
	cgroupPatience = 5 * time.Minute
	cgroupInterval = 10 * time.Millisecond
	// The lock is taken right after the directory is made: a directory that is older than this and has no lock file has
	// no owner.
	lockPatience = time.Minute
)

// newDir makes a node's directory and takes its lock. The lock is free again when no process has the returned file open
// any more.
func newDir() (string, *os.File, error) {
	dir, err := os.MkdirTemp("", DirPrefix)
	if err != nil {
		return "", nil, err
	}
	// Sweep takes a lock that is free, so the file gets its name when this process has it.
	name := filepath.Join(dir, lockName)
	lock, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return "", nil, err
	}
	// containers may run as any user, and get paths in this directory
	return dir, lock, errors.Join(
		os.Chmod(dir, 0o755), unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.Rename(name+".new", name))
}

// Sweep removes what killed keepers left in os.TempDir and the cgroups, and returns the directories. Their processes
// and mounts ended with the keepers. It skips nodes that are in use.
func Sweep() ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), DirPrefix+"*"))
	if err != nil {
		return nil, err
	}
	var swept []string
	var problems []error
	for _, dir := range dirs {
		lock, err := abandoned(dir)
		if lock == nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, remove(dir), lock.Close())
		swept = append(swept, dir)
	}
	return swept, errors.Join(problems...)
}

// abandoned returns the lock of dir if it is free, and nil if another process holds it.
func abandoned(dir string) (*os.File, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	name, flags := filepath.Join(dir, lockName), os.O_RDWR|unix.O_NOFOLLOW
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		// A keeper that has just removed the file has changed the directory.
		if info, err = os.Lstat(dir); err == nil && time.Since(info.ModTime()) < lockPatience {
			return nil, nil
		}
		flags |= os.O_CREATE // only here: else a new file blocks the keeper's removal of dir
	}
	lock, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // its keeper has just removed the directory
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, errors.Join(err, lock.Close())
}

// remove removes the cgroups first: while the directory exists, the next sweep finds the rest.
func remove(dir string) error {
	if err := removeCgroups(filepath.Base(dir)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// hierarchies returns the root of the cgroup v2 tree, or every cgroup v1 hierarchy (and the v2 one next to them).
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, entry := range entries { // links are aliases: cpu and cpuacct of cpu,cpuacct
		if entry.IsDir() {
			roots = append(roots, filepath.Join(cgroupRoot, entry.Name()))
		}
	}
	return roots, nil
}

// makeCgroups makes kubelet's root cgroup in every hierarchy, since kubelet does not make it itself.
func makeCgroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
		// cpuset of v1 starts empty, and accepts no process until it is set (cgroup-v1/cpusets.rst)
		for _, key := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, key))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(group, key), bytes.TrimSpace(value), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeCgroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	expired := time.After(cgroupPatience)
	again := time.NewTicker(cgroupInterval)
	defer again.Stop()
	for _, root := range roots {
		for err := removeCgroup(filepath.Join(root, name)); err != nil; err = removeCgroup(filepath.Join(root, name)) {
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("cgroups: %w", err)
			}
			select {
			case <-again.C:
			case <-expired:
				return fmt.Errorf("cgroups: after %s: %w", cgroupPatience, err)
			}
		}
	}
	return nil
}

// removeCgroup removes a group and its children, deepest first; the kernel removes their files.
func removeCgroup(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, each := range slices.Backward(groups) {
		if err := unix.Rmdir(each); err != nil {
			return fmt.Errorf("%s: %w", each, err)
		}
	}
	return nil
}
