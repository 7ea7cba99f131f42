// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Layers are the directories of an image's layers, the uppermost first, as overlayfs has them. No symlink is followed:
// it would mean another file here than inside the image.
type Layers []*os.Root

// OpenLayers opens directories; Close closes them.
func OpenLayers(dirs []string) (Layers, error) {
	var l Layers
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l = append(l, root)
	}
	return l, nil
}

// Close closes the directories.
func (l Layers) Close() error {
	var errs []error
	for _, root := range l {
		errs = append(errs, root.Close())
	}
	return errors.Join(errs...)
}

// File is an open file of an image, and what to read from it.
type File struct {
	Kind string // RPM, Dpkg, Apk or Go
	Name string
	*os.File
}

// The directories in which rpm, dpkg and apk keep databases, and those of programs of images without any.
var (
	rpmDirs   = []string{"usr/lib/sysimage/rpm", "var/lib/rpm", "usr/share/rpm"}
	rpmFiles  = []string{"Packages", "Packages.db", "rpmdb.sqlite"}
	apkFiles  = []string{"lib/apk/db/installed", "usr/lib/apk/db/installed"}
	programs  = []string{".", "bin", "usr/bin", "usr/local/bin", "sbin", "usr/sbin", "app"}
	dpkgFile  = "var/lib/dpkg/status"
	dpkgFiles = dpkgFile + ".d" // of a distroless image, one package each
)

// Find opens what says which packages an image has: the databases; if there is none or only the one of a distroless
// image, also its programs. The caller closes the files, also after an error.
func (l Layers) Find() (files []File, err error) {
	for _, dir := range rpmDirs {
		for _, name := range rpmFiles {
			if files, err = l.add(files, RPM, path.Join(dir, name)); err != nil {
				return files, err
			}
		}
		if err := l.checkLog(dir + "/rpmdb.sqlite-wal"); err != nil {
			return files, err
		}
	}
	if len(files) > 1 {
		return files, fmt.Errorf("%s and %s: which of them rpm reads is not known", files[0].Name, files[1].Name)
	}
	for kind, names := range map[string][]string{Apk: apkFiles, Dpkg: {dpkgFile}} {
		for _, name := range names {
			if files, err = l.add(files, kind, name); err != nil {
				return files, err
			}
		}
	}
	if len(files) > 0 {
		return files, nil
	}
	if files, err = l.addAll(files, Dpkg, dpkgFiles); err != nil {
		return files, err
	}
	for _, dir := range programs {
		if files, err = l.addAll(files, Go, dir); err != nil {
			return files, err
		}
	}
	return files, nil
}

// add opens a file, if the image has it.
func (l Layers) add(files []File, kind, name string) ([]File, error) {
	file, err := l.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return files, err
	}
	if len(files) == maxFiles {
		return files, errors.Join(tooMany(maxFiles, "files"), file.Close())
	}
	return append(files, File{kind, name, file}), nil
}

// addAll opens the files of a directory that may have packages.
func (l Layers) addAll(files []File, kind, dir string) ([]File, error) {
	names, err := l.list(dir)
	if err != nil {
		return files, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".md5sums") {
			continue
		}
		had := len(files)
		if files, err = l.add(files, kind, path.Join(dir, name)); err != nil {
			return files, err
		}
		if had < len(files) && kind == Go && !isELF(files[had]) {
			_ = files[had].Close()
			files = files[:had]
		}
	}
	return files, nil
}

func isELF(r io.ReaderAt) bool {
	magic := make([]byte, 4)
	_, err := r.ReadAt(magic, 0)
	return err == nil && string(magic) == "\x7fELF"
}

// checkLog returns an error if sqlite has not moved all changes from its log into the database.
func (l Layers) checkLog(name string) error {
	log, err := l.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	if info, err := log.Stat(); err != nil || info.Size() > 0 {
		return fmt.Errorf("%s: the database has changes that only sqlite can read", name)
	}
	return nil
}

// open opens a regular file of the uppermost layer that has it.
func (l Layers) open(name string) (*os.File, error) {
	for _, root := range l {
		info, isLast, err := look(root, name)
		switch {
		case err != nil:
			return nil, err
		case info != nil && !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s: not a regular file", name)
		case info != nil:
			return root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		case isLast:
			return nil, fs.ErrNotExist
		}
	}
	return nil, fs.ErrNotExist
}

// list returns the names of the regular files in a directory of all layers.
func (l Layers) list(dir string) (names []string, err error) {
	seen := map[string]bool{}
	for _, root := range l {
		info, isLast, err := look(root, dir)
		if err != nil {
			return nil, err
		}
		var entries []fs.DirEntry
		if info != nil && info.IsDir() {
			if entries, err = readDir(root, dir); err != nil {
				return nil, err
			}
		}
		for _, e := range entries {
			if !seen[e.Name()] && e.Type().IsRegular() {
				names = append(names, e.Name())
			}
			seen[e.Name()] = true
		}
		if len(seen) > maxEntries {
			return nil, fmt.Errorf("%s: %w", dir, tooMany(maxEntries, "entries"))
		}
		if isLast {
			break
		}
	}
	slices.Sort(names)
	return names, nil
}

func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	dir, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries + 1)
	if errors.Is(err, io.EOF) { // of an empty directory
		err = nil
	}
	return entries, err
}

// look returns a file of one layer, nil if the layer does not have it; isLast: it hides the file of the layers below,
// by a whiteout, an opaque directory, or another file in the place of a directory.
func look(root *os.Root, name string) (info fs.FileInfo, isLast bool, err error) {
	parts := strings.Split(name, "/")
	for n := range parts {
		at := strings.Join(parts[:n+1], "/")
		info, err = root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, isLast, nil
		case err != nil:
			return nil, false, err
		case isWhiteout(info):
			return nil, true, nil
		case n == len(parts)-1 && !info.IsDir():
			return info, true, nil
		case !info.IsDir():
			return nil, true, nil
		}
		isOpaque, err := isOpaque(root, at)
		if err != nil {
			return nil, false, err
		}
		isLast = isLast || isOpaque
	}
	return info, isLast, nil
}

func isWhiteout(info fs.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && info.Mode()&fs.ModeCharDevice != 0 && stat.Rdev == 0
}

// isOpaque reports whether overlayfs shows nothing of the layers below in a directory.
func isOpaque(root *os.Root, name string) (bool, error) {
	dir, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	value := make([]byte, 1)
	for _, name := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		n, err := unix.Fgetxattr(int(dir.Fd()), name, value)
		if err == nil && n == 1 && value[0] == 'y' {
			return true, nil
		}
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
			return false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return false, nil
}
