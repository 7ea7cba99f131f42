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

// Layers are the directories of an image's layers, the uppermost first, as overlayfs has them. A symlink is never
// opened: it would mean another file here than inside the image (see resolve).
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

// databases are the files in which rpm, dpkg and apk keep what is installed. An image has at most one of each format.
var databases = []struct {
	kind  string
	names []string
}{
	{RPM, []string{
		"usr/lib/sysimage/rpm/Packages", "usr/lib/sysimage/rpm/Packages.db", "usr/lib/sysimage/rpm/rpmdb.sqlite",
		"var/lib/rpm/Packages", "var/lib/rpm/Packages.db", "var/lib/rpm/rpmdb.sqlite",
		"usr/share/rpm/Packages", "usr/share/rpm/Packages.db", "usr/share/rpm/rpmdb.sqlite",
	}},
	{Dpkg, []string{"var/lib/dpkg/status"}},
	{Apk, []string{"lib/apk/db/installed", "usr/lib/apk/db/installed"}},
}

// dpkgFiles has the packages of a distroless image, a file for each; programs are the usual directories of programs,
// and that of ko.
var (
	dpkgFiles = "var/lib/dpkg/status.d"
	programs  = []string{".", "bin", "usr/bin", "usr/local/bin", "sbin", "usr/sbin", "app", "ko-app"}
)

// Find opens the files that list the packages of an image: the databases; if there is none or only the one of a
// distroless image, also its programs. The caller closes the files, also after an error.
func (l Layers) Find() (files []File, err error) {
	for _, of := range databases {
		had := len(files)
		for _, name := range of.names {
			if files, err = l.add(files, of.kind, name); err != nil {
				return files, err
			}
		}
		if found := files[had:]; len(found) > 1 {
			return files, fmt.Errorf("%s and %s: it is not known which of them %s reads", found[0].Name, found[1].Name, of.kind)
		}
	}
	if len(files) > 0 {
		return files, l.checkLogs(files)
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

// add opens a file, if the image has it, and it is not there already by another name.
func (l Layers) add(files []File, kind, name string) ([]File, error) {
	file, name, err := l.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return files, err
	}
	isWanted := !slices.ContainsFunc(files, func(f File) bool { return f.Name == name })
	if isWanted && kind == Go {
		isWanted, err = isELF(file)
	}
	if isWanted && len(files) == maxFiles {
		err = tooMany(maxFiles, "files")
	}
	if err != nil || !isWanted {
		return files, errors.Join(err, file.Close())
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
		if kind == Dpkg && strings.HasSuffix(name, ".md5sums") {
			continue
		}
		if files, err = l.add(files, kind, path.Join(dir, name)); err != nil {
			return files, err
		}
	}
	return files, nil
}

func isELF(f *os.File) (bool, error) {
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(magic) == "\x7fELF", nil
}

// checkLogs returns an error if sqlite has not moved all changes from its log into a database, or would take some back,
// and if dpkg has not moved its updates into status.
func (l Layers) checkLogs(files []File) error {
	for _, f := range files {
		updates, err := l.list(path.Join(path.Dir(f.Name), "updates"))
		if err != nil {
			return err
		}
		if f.Kind == Dpkg && slices.ContainsFunc(updates, isNumber) {
			return fmt.Errorf("%s: the database has updates that only dpkg can read", f.Name)
		}
		for _, suffix := range []string{"-wal", "-journal"} {
			log, name, err := l.open(f.Name + suffix)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			info, err := log.Stat()
			if err = errors.Join(err, log.Close()); err != nil {
				return err
			}
			if info.Size() > 0 {
				return fmt.Errorf("%s: the database has changes that only sqlite can read", name)
			}
		}
	}
	return nil
}

func isNumber(name string) bool { return strings.Trim(name, "0123456789") == "" }

// open opens a regular file of the uppermost layer that has it, and returns its name without symlinks.
func (l Layers) open(name string) (file *os.File, at string, err error) {
	dir, err := l.resolve(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	at = path.Join(dir.name, path.Base(name))
	info, in, err := look(dir.in, at)
	switch {
	case err != nil:
		return nil, "", err
	case info == nil:
		return nil, "", fs.ErrNotExist
	case !info.Mode().IsRegular():
		return nil, "", fmt.Errorf("%s: not a regular file", at)
	}
	file, err = in[0].OpenFile(at, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return file, at, err
}

// directory is one that overlayfs shows: its name without symlinks, and the layers of which it shows the files.
type directory struct {
	name string
	in   Layers
}

// resolve returns the directory that a name means inside the image: no symlink leads out of it.
func (l Layers) resolve(dir string) (directory, error) {
	at := []directory{{".", l}}
	rest := strings.Split(dir, "/")
	for step := 0; len(rest) > 0; step++ {
		if step == maxSteps {
			return directory{}, fmt.Errorf("%s: too many symlinks", dir)
		}
		part, parent := rest[0], at[len(at)-1]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = at[:max(1, len(at)-1)]
			continue
		}
		name := path.Join(parent.name, part)
		info, in, err := look(parent.in, name)
		switch {
		case err != nil:
			return directory{}, err
		case info == nil, !info.IsDir() && info.Mode().Type() != fs.ModeSymlink:
			return directory{}, fs.ErrNotExist
		case info.IsDir():
			at = append(at, directory{name, in})
			continue
		}
		target, err := in[0].Readlink(name)
		if err != nil {
			return directory{}, err
		}
		if path.IsAbs(target) {
			at = at[:1]
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at[len(at)-1], nil
}

// list returns the names of the regular files in a directory of all layers.
func (l Layers) list(name string) (names []string, err error) {
	dir, err := l.resolve(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, root := range dir.in {
		entries, err := readDir(root, dir.name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !seen[e.Name()] && e.Type().IsRegular() {
				names = append(names, e.Name())
			}
			seen[e.Name()] = true
		}
		if len(seen) > maxEntries {
			return nil, fmt.Errorf("%s: %w", dir.name, tooMany(maxEntries, "entries"))
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

// look returns the file that overlayfs shows of layers, nil if there is none, and those of which it shows it: several
// may have a directory. A layer hides those below it by a whiteout, an opaque directory, or a file where they have a
// directory.
func look(layers Layers, name string) (info fs.FileInfo, in Layers, err error) {
	for _, root := range layers {
		is, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, nil, err
		case isWhiteout(is), info != nil && !is.IsDir():
			return info, in, nil
		case !is.IsDir():
			return is, Layers{root}, nil
		}
		if info == nil {
			info = is
		}
		in = append(in, root)
		if isOpaque, err := isOpaque(root, name); err != nil || isOpaque {
			return info, in, err
		}
	}
	return info, in, nil
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
