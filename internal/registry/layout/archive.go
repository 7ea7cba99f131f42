// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
