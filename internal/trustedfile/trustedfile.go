// SPDX-License-Identifier: Apache-2.0

// Package trustedfile reads small files of the node whose content the agent acts on: settings, keys, logins,
// certificate authorities.
//
// A trusted file belongs to root or to the user of this process, and nobody else may write to it. The package promises:
//
//   - Only regular files are read. A FIFO does not block, and a device is not opened: that alone may act.
//   - At most the caller's limit of bytes is read; a larger file is ErrTooLarge.
//   - Kind and owner are those of the file that is read, although its name may lead elsewhere by then.
//   - Symlinks are followed, because admins use them.
package trustedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Read returns the content of a trusted file. Its errors do not name the file.
func Read(path string, limit int64) ([]byte, error) {
	data, _, err := read(path, limit, false)
	return data, err
}

// read returns the content, and the file as it was found; nil where it could not be opened.
func read(path string, limit int64, anyOwner bool) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, atomicfile.Plain(err)
	}
	if err := checkRegular(info, limit); err != nil {
		return nil, info, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, atomicfile.Plain(err)
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, nil, atomicfile.Plain(err)
	}
	if err := checkRegular(info, limit); err != nil {
		return nil, info, err
	}
	if err := checkOwner(info); err != nil && !anyOwner {
		return nil, info, err
	}
	data, err := outside.ReadAll(file, limit)
	return data, info, atomicfile.Plain(err)
}

// Check returns why a file cannot be read whole: it is not regular, or larger than the limit. One that does not exist
// is fine, and so is one of any owner.
func Check(path string, limit int64) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = checkRegular(info, limit)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, atomicfile.Plain(err))
	}
	return nil
}

func checkRegular(info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > limit:
		return fmt.Errorf("%w: %d bytes, at most %d", outside.ErrTooLarge, info.Size(), limit)
	}
	return nil
}

// checkOwner refuses a file that somebody else than root and the user of this process may have written. Others may read
// it: that is its owner's risk.
func checkOwner(info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("mode %#o: others may write to it (chmod go-w)", info.Mode().Perm())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
}

// Stamp is another text when a file was written, replaced, or given another mode or owner. A copy may keep the size and
// the modification time of what it replaces; it cannot keep inode and change time.
func Stamp(info fs.FileInfo) string {
	text := fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), info.Mode())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" %d %d %d %d", stat.Dev, stat.Ino, stat.Uid, stat.Ctim.Nano())
	}
	return text
}
