// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Errors of Open.
var (
	// ErrNotLayout: the path has no valid oci-layout.
	ErrNotLayout = errors.New("not an OCI image layout")
	// ErrCompressed: the tar file is compressed, so single layers cannot be accessed.
	ErrCompressed = errors.New("compressed")
	// ErrUnnamed: no image has a name with a repository.
	ErrUnnamed = errors.New("no image has a full name")
)

// The files of a layout (OCI image specification, image-layout.md).
const (
	markerFile = "oci-layout"
	indexFile  = "index.json"
	blobsDir   = "blobs"
)

// place is a directory or a tar file. Names are relative, with slashes.
type place interface {
	// open opens a regular file and returns its size.
	open(name string) (io.ReadCloser, int64, error)
	// layouts lists the directories with an oci-layout, sorted; "." is the place
	// itself. None is below another one.
	layouts() ([]string, error)
	Close() error
}

// magics are the first bytes of compressed files.
var magics = map[string]string{
	"gzip": "\x1f\x8b", "bzip2": "BZh", "xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd",
}

// openPlace opens only a directory or a tar file: opening a FIFO or a device may block or have side effects.
func openPlace(name string) (place, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, nodefile.Plain(err)
	case info.IsDir():
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, nodefile.Plain(err)
		}
		return &directory{root}, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: neither directory nor tar file", ErrNotLayout)
	}
	file, err := nodefile.Open(name)
	if err != nil {
		return nil, err
	}
	archive, err := openArchive(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return archive, nil
}

// compression returns the kind of compression by the first bytes; empty if there is none.
func compression(file io.ReaderAt) string {
	head := make([]byte, 8)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	for kind, magic := range magics {
		if bytes.HasPrefix(head[:n], []byte(magic)) {
			return kind
		}
	}
	return ""
}

// read reads a small file.
func read(p place, name string, limit int64) ([]byte, error) {
	file, _, err := p.open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(name), err)
	}
	defer file.Close()
	data, err := outside.ReadAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(name), nodefile.Plain(err))
	}
	return data, nil
}

// outermost sorts directories and drops those below another one.
func outermost(dirs []string) []string {
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		for dir != "." {
			dir = path.Dir(dir)
			if _, found := slices.BinarySearch(dirs, dir); found {
				return true
			}
		}
		return false
	})
}

// archive is a place in an uncompressed tar file, with a table of its members from one pass over the headers.
type archive struct {
	file    *os.File
	members map[string]member
}

type member struct{ offset, size int64 }

func openArchive(file *os.File) (*archive, error) {
	if kind := compression(file); kind != "" {
		return nil, fmt.Errorf("%w: with %s", ErrCompressed, kind)
	}
	a := &archive{file: file, members: map[string]member{}}
	headers := tar.NewReader(file)
	for seen := 0; ; seen++ {
		header, err := headers.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil && seen == 0 {
			return nil, fmt.Errorf("%w: no tar file: %w", ErrNotLayout, err)
		}
		if err != nil {
			return nil, fmt.Errorf("tar: %w", err)
		}
		if seen == maxEntries {
			return nil, fmt.Errorf("tar: %w: over %d members", outside.ErrTooLarge, maxEntries)
		}
		if err := a.add(header); err != nil {
			return nil, fmt.Errorf("tar: %s: %w", shown(header.Name), err)
		}
	}
}

// add records the offset of a member; the tar reader has read only its header. It skips members that are not regular
// files (links, devices, sparse files). It rejects a second member of the same name, because tar would extract the last
// one.
func (a *archive) add(header *tar.Header) error {
	name := path.Clean(header.Name)
	if header.Typeflag != tar.TypeReg || !fs.ValidPath(name) || !isOfLayout(name) {
		return nil
	}
	offset, err := a.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nodefile.Plain(err)
	}
	if _, twice := a.members[name]; twice {
		return errors.New("appears twice")
	}
	a.members[name] = member{offset, header.Size}
	return nil
}

// isOfLayout reports whether a layout may have a file of that name, within maxDepth: a blob
// is three levels below the oci-layout.
func isOfLayout(name string) bool {
	base := path.Base(name)
	if strings.Count(name, "/") > maxDepth+3 {
		return false
	}
	return base == markerFile || base == indexFile || path.Base(path.Dir(path.Dir(name))) == blobsDir
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	m, ok := a.members[name]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(io.NewSectionReader(a.file, m.offset, m.size)), m.size, nil
}

func (a *archive) layouts() ([]string, error) {
	var found []string
	for name := range a.members {
		if dir := path.Dir(name); path.Base(name) == markerFile && strings.Count(dir, "/") < maxDepth {
			found = append(found, dir)
		}
	}
	return outermost(found), nil
}

// Close closes the file.
func (a *archive) Close() error { return a.file.Close() }

// directory is a place in a directory; symbolic links do not lead out of it.
type directory struct{ root *os.Root }

// open opens a regular file. Without O_NONBLOCK, opening a FIFO would block.
func (d *directory) open(name string) (io.ReadCloser, int64, error) {
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, nodefile.Plain(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("not a regular file: %s", info.Mode().Type())
	}
	if err != nil {
		file.Close()
		return nil, 0, nodefile.Plain(err)
	}
	return file, info.Size(), nil
}

// layouts walks the tree. It does not follow symbolic links, nor descend into a layout.
func (d *directory) layouts() ([]string, error) {
	var found []string
	seen := 0
	err := fs.WalkDir(d.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", shown(name), nodefile.Plain(err))
		}
		if seen++; seen > maxEntries {
			return fmt.Errorf("%w: over %d files", outside.ErrTooLarge, maxEntries)
		}
		if !entry.IsDir() {
			return nil
		}
		if _, err := d.root.Lstat(path.Join(name, markerFile)); err == nil {
			found = append(found, name)
			return fs.SkipDir
		}
		if strings.Count(name, "/") >= maxDepth-1 {
			return fs.SkipDir
		}
		return nil
	})
	return outermost(found), err
}

// Close closes the directory, but not its open files.
func (d *directory) Close() error { return d.root.Close() }
