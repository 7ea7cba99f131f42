// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// tableFile is the table at a path. It is read again when the file changes.
type tableFile struct {
	path string
	seen stamp
	t    table.Table
	err  error
}

// stamp changes when a file is written, replaced, or gets another mode or owner.
type stamp struct {
	dev, ino, size uint64
	changed        syscall.Timespec
}

// get returns the table, empty if the file is missing, or why it cannot be used. changed is true once for each change.
func (f *tableFile) get() (t table.Table, changed bool, err error) {
	info, err := os.Stat(f.path)
	var now stamp
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		now = stampOf(info)
	}
	if err == nil && now == f.seen {
		return f.t, false, f.err
	}
	f.seen, f.t, f.err = now, table.Table{}, err
	if now != (stamp{}) {
		f.t, f.err = read(f.path)
	}
	return f.t, true, f.err
}

// read returns the table at a path. As the agent does with all files whose content it acts on, it reads only a regular
// file that belongs to root or to the user of this process, and that no other user may write to.
func read(path string) (t table.Table, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return table.Table{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return table.Table{}, err
	}
	if err := isTrusted(info); err != nil {
		return table.Table{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, table.MaxFile+1))
	if err != nil {
		return table.Table{}, err
	}
	if len(data) > table.MaxFile {
		return table.Table{}, errors.New("too large")
	}
	return table.Parse(data)
}

func isTrusted(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("mode %#o: others may write to it (chmod go-w)", info.Mode().Perm())
	case !ok:
		return errors.New("unknown owner")
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
}

func stampOf(info fs.FileInfo) stamp {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{size: uint64(info.Size())}
	}
	return stamp{stat.Dev, stat.Ino, uint64(stat.Size), stat.Ctim}
}
