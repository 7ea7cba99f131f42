// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Read returns the content of a trusted file. Its errors do not name the file.
func Read(path string, limit int64) ([]byte, error) {
	data, _, err := read(path, limit, false)
	return data, err
}

// ReadSecret is like Read for a file that only its owner may read.
func ReadSecret(path string, limit int64) ([]byte, error) {
	data, info, err := read(path, limit, false)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("mode %#o: others may read it (chmod go=)", info.Mode().Perm())
	}
	return data, err
}

// read returns the content, and the file's info; nil if it could not be opened.
func read(path string, limit int64, anyOwner bool) ([]byte, fs.FileInfo, error) {
	file, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, Plain(err)
	}
	if err := checkRegular(info, limit); err != nil {
		return nil, info, err
	}
	if err := checkOwner(info); err != nil && !anyOwner {
		return nil, info, err
	}
	data, err := outside.ReadAll(file, limit)
	return data, info, Plain(err)
}

// Open opens a regular file of any owner. Anything else is not opened, because a FIFO may block forever and a device
// may have side effects.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, Plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Plain(err)
	}
	if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() { // it was replaced
		err = errNotRegular
	}
	if err != nil {
		return nil, errors.Join(Plain(err), file.Close())
	}
	return file, nil
}

var errNotRegular = errors.New("not a regular file")

// Check returns why a file cannot be read completely: it is not regular, or larger than the limit. A missing file is
// accepted, and so is any owner.
func Check(path string, limit int64) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = checkRegular(info, limit)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, Plain(err))
	}
	return nil
}

func checkRegular(info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return errNotRegular
	case info.Size() > limit:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, info.Size(), limit)
	}
	return nil
}

// Stamp returns a text that changes when a file is written, replaced, or gets another mode or owner. A copy may keep
// the size and the modification time of the replaced file, but not inode and change time.
func Stamp(info fs.FileInfo) string {
	text := fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), info.Mode())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" %d %d %d %d", stat.Dev, stat.Ino, stat.Uid, stat.Ctim.Nano())
	}
	return text
}
