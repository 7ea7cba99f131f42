// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

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
