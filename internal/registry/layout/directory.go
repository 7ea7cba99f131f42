// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
