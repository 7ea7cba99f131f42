// SPDX-License-Identifier: Apache-2.0

// Package podfiles reads and writes the directories of pod manifests on the node, and reads the tag files of the image
// packages.
//
// Templates are shipped by packages (*.yaml, *.yml, *.json). Pod manifests are kubelet's files: every file of its
// directory without a leading dot, with any suffix. Waiting files are rendered and not approved yet.
//
// An unsafe file (symlink, directory, FIFO, device, of another owner than root, writable by group or others, larger
// than 1 MiB, with a control character in its name) is listed with its error and without data, and never replaced; for
// a pod manifest also with the content that kubelet reads, or the fact that kubelet ignores it. A write replaces only
// the content that was read, else it returns release.ErrConflict. A new file has mode 0600, as kubeadm's have, because
// pod manifests have secrets in their environment; one in the place of another one gets its mode and owner.
package podfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// maxFile limits one file, in bytes, as etcd limits an object.
const maxFile = 1 << 20

// maxTotal limits all files of a directory, in bytes: they stay in memory for a cycle.
const maxTotal = 8 << 20

// newMode is the mode of a new file.
const newMode = 0o600

// Dirs are the directories, as absolute paths.
type Dirs struct {
	Templates    string // may be missing: no templates
	PodManifests string // kubelet's staticPodPath
	Rendered     string // created by Keep
}

// Files are the pod manifests of a node. It implements node.PodFiles.
type Files struct{ dirs Dirs }

var _ node.PodFiles = (*Files)(nil)

// New returns the files in dirs. Each call opens its directory again, because it may have been replaced or mounted.
func New(dirs Dirs) *Files { return &Files{dirs: dirs} }

// Sweep removes the temporary files that a crash left in kubelet's directory and in that of the waiting files. Call it
// once at the start, while holding the lock against other agents.
func (f *Files) Sweep(ctx context.Context) error {
	for _, path := range []string{f.dirs.PodManifests, f.dirs.Rendered} {
		if err := in(ctx, path, optional, (*nodefile.Dir).Sweep); err != nil {
			return wrap(err)
		}
	}
	return nil
}

// Whether a directory may be missing: nothing is done then.
const optional, required = true, false

// in calls act with a directory.
func in(ctx context.Context, path string, isOptional bool, act func(*nodefile.Dir) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := nodefile.OpenDir(path)
	if isOptional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return act(dir)
}

// Templates lists the templates, sorted by name.
func (f *Files) Templates(ctx context.Context) ([]node.PodFile, error) {
	files, err := list(ctx, f.dirs.Templates, optional, func(name string) bool {
		return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
	})
	if err != nil {
		return nil, fmt.Errorf("podfiles: templates: %w", err)
	}
	return files, nil
}

// PodManifests lists kubelet's directory, sorted by name. A missing directory is an error
// (fs.ErrNotExist): it may be a late mount.
func (f *Files) PodManifests(ctx context.Context) ([]node.PodFile, error) {
	files, err := list(ctx, f.dirs.PodManifests, required, all)
	if err != nil {
		return nil, wrap(err)
	}
	return files, nil
}

// Waiting lists the rendered files that wait for approval, sorted by name.
func (f *Files) Waiting(ctx context.Context) ([]node.PodFile, error) {
	files, err := list(ctx, f.dirs.Rendered, optional, all)
	if err != nil {
		return nil, fmt.Errorf("podfiles: waiting: %w", err)
	}
	return files, nil
}

func all(string) bool { return true }

// list reads the accepted files of a directory. In the required one, which is kubelet's, it also reads what kubelet
// reads from files that the agent must not use.
func list(
	ctx context.Context, path string, isOptional bool, accept func(name string) bool,
) (files []node.PodFile, err error) {
	err = in(ctx, path, isOptional, func(dir *nodefile.Dir) error {
		names, err := dir.List()
		left := int64(maxTotal)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !accept(name) {
				continue
			}
			file, there := readOne(dir, name, left)
			if !there {
				continue
			}
			if file.Err != nil && !isOptional {
				file.Followed, file.PassedOver = kubeletReads(filepath.Join(path, name), min(maxFile, left))
			}
			files = append(files, file)
			left -= int64(len(file.Content()))
		}
		return err
	})
	return files, err
}

// readOne reads one file of at most left bytes; false if it was removed since the directory was listed.
func readOne(dir *nodefile.Dir, name string, left int64) (node.PodFile, bool) {
	file, err := dir.Read(name, min(maxFile, left))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return node.PodFile{}, false
	case errors.Is(err, nodefile.ErrName):
		// From here on the name is only shown.
		return node.PodFile{Name: strconv.QuoteToASCII(name), Err: err}, true
	case errors.Is(err, nodefile.ErrTooLarge) && left < maxFile:
		return node.PodFile{Name: name, Err: fmt.Errorf("%w (%d bytes for all files together)", err, maxTotal)}, true
	case err != nil:
		return node.PodFile{Name: name, Err: err}, true
	}
	return node.PodFile{Name: name, Data: file.Data}, true
}

// Write replaces a file of kubelet's directory if it is still as read (was.Data nil: it does not exist yet), else it
// returns release.ErrConflict. In the place of a file that is set aside it gets its mode and owner.
func (f *Files) Write(ctx context.Context, was node.PodFile, data []byte) error {
	if err := writable(was, data); err != nil {
		return fmt.Errorf("podfiles: %s: %w", was.Name, err)
	}
	err := f.change(ctx, was, func(dir *nodefile.Dir, expect *nodefile.File) error {
		options := nodefile.Options{Mode: newMode, Expect: expect}
		if !expect.Exists() {
			switch aside, err := dir.Aside(was.Name); {
			case err == nil:
				options.Like = &aside
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		_, err := dir.Write(was.Name, data, options)
		return err
	})
	return wrap(err)
}

// Remove deletes a file of kubelet's directory if it is still as read, else it returns release.ErrConflict. A missing
// file is not an error.
func (f *Files) Remove(ctx context.Context, was node.PodFile) error {
	if was.Err != nil || was.Data == nil {
		return fmt.Errorf("podfiles: %s: cannot remove a file that was not read", was.Name)
	}
	err := f.change(ctx, was, func(dir *nodefile.Dir, expect *nodefile.File) error {
		return dir.Remove(was.Name, expect)
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return wrap(err)
}

// writable rejects data that could not be read again, and a file that was not read.
func writable(was node.PodFile, data []byte) error {
	switch {
	case was.Err != nil:
		return fmt.Errorf("not overwritten: %w", was.Err)
	case len(data) == 0:
		return errors.New("not written: no content")
	case len(data) > maxFile:
		return fmt.Errorf("not written: %w: %d bytes, at most %d", nodefile.ErrTooLarge, len(data), maxFile)
	}
	return nil
}

// errGone: the file that was read no longer exists.
var errGone = fmt.Errorf("%w: gone", release.ErrConflict)

// change calls act for a file of kubelet's directory if it still has the content that was read. act gets the current
// file to compare with.
func (f *Files) change(
	ctx context.Context, was node.PodFile, act func(dir *nodefile.Dir, expect *nodefile.File) error,
) error {
	return in(ctx, f.dirs.PodManifests, required, func(dir *nodefile.Dir) error {
		if was.Data == nil {
			return act(dir, &nodefile.File{})
		}
		now, err := dir.Read(was.Name, maxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: %w", was.Name, errGone)
		case err != nil:
			return err
		case !bytes.Equal(now.Data, was.Data):
			return fmt.Errorf("%s: %w", was.Name, release.ErrConflict)
		}
		return act(dir, &now)
	})
}

// wrap adds the place, and release.ErrConflict to a conflict.
func wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nodefile.ErrConflict):
		return fmt.Errorf("podfiles: %w: %w", release.ErrConflict, err)
	}
	return fmt.Errorf("podfiles: %w", err)
}

// Keep stores a rendered file until it is approved; nil data drops it.
func (f *Files) Keep(ctx context.Context, name string, data []byte) error {
	if data == nil {
		return wrap(in(ctx, f.dirs.Rendered, optional, func(dir *nodefile.Dir) error { return dir.Remove(name, nil) }))
	}
	if err := writable(node.PodFile{}, data); err != nil {
		return fmt.Errorf("podfiles: waiting %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Not accessible to other users, like the files.
	if err := os.MkdirAll(f.dirs.Rendered, 0o700); err != nil {
		return wrap(err)
	}
	return wrap(in(ctx, f.dirs.Rendered, required, func(dir *nodefile.Dir) error {
		_, err := dir.Write(name, data, nodefile.Options{Mode: newMode})
		return err
	}))
}

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
	return wrap(err)
}

// PutBack restores all files that any process set aside, and returns their names, sorted; with an error, those that it
// could restore. If there is a new file with the name, PutBack removes the one that was set aside. It is idempotent,
// and safe for concurrent use by several processes.
func (f *Files) PutBack(ctx context.Context) (names []string, err error) {
	err = in(ctx, f.dirs.PodManifests, optional, func(dir *nodefile.Dir) error {
		names, err = dir.PutBack()
		return err
	})
	return names, wrap(err)
}

// Aside returns the names of the files that are set aside and have no new file in their place, sorted: their pods are
// gone.
func (f *Files) Aside(ctx context.Context) (gone []string, err error) {
	err = in(ctx, f.dirs.PodManifests, required, func(dir *nodefile.Dir) error {
		aside, err := dir.AllAside()
		if err != nil {
			return err
		}
		present, err := dir.List()
		gone = slices.DeleteFunc(aside, func(name string) bool { return slices.Contains(present, name) })
		return err
	})
	return gone, wrap(err)
}

// kubeletMax is the size in bytes from which kubelet does not read a file (pkg/kubelet/config/common.go).
const kubeletMax = 10 << 20

// kubeletReads returns the content that kubelet reads from a file that the agent must not use, at most limit bytes; or
// that kubelet ignores the file. If neither, it is unknown. kubelet follows symlinks, whatever their owner and mode,
// and reads only regular files (pkg/kubelet/config/file.go, extractFromDir).
func kubeletReads(path string, limit int64) (data []byte, passedOver bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP):
		return nil, !isHidden(path)
	case err != nil:
		return nil, false
	case !info.Mode().IsRegular(), info.Size() >= kubeletMax:
		return nil, true
	}
	file, err := nodefile.Open(path)
	if err != nil {
		return nil, false
	}
	defer func() { _ = file.Close() }()
	data, _ = outside.ReadAll(file, limit) // nil if it has more
	return data, false
}

// hidden are the directories that systemd hides from the daemon but not from kubelet: ProtectHome, PrivateTmp and
// PrivateDevices.
var hidden = []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/", "/dev/"}

// isHidden reports whether a symlink may appear dangling only because of that.
func isHidden(path string) bool {
	_, err := filepath.EvalSymlinks(path) // names the missing path
	missing, is := errors.AsType[*fs.PathError](err)
	return is && slices.ContainsFunc(hidden, func(dir string) bool {
		return strings.HasPrefix(missing.Path, dir) && !strings.HasPrefix(path, dir)
	})
}
