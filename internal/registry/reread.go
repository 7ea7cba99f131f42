// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// watched is a small file that is read and parsed again when it changes. A file
// that is not there is the zero value and no error.
type watched[T any] struct {
	path  string
	limit int64                   // bytes
	check func(fs.FileInfo) error // nil: any regular file will do
	parse func([]byte) (T, error)

	mu    sync.Mutex
	known fs.FileInfo // nil: not there
	value T
	err   error
}

// get gives what the file says now. changed is true once for each change.
func (w *watched[T]) get() (value T, changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := os.Stat(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		changed, w.known, w.value, w.err = w.known != nil, nil, value, nil
	case err != nil:
		changed, w.known, w.value, w.err = w.err == nil, nil, value, err
	case w.known == nil || !unchanged(w.known, info):
		changed = true
		w.known, w.value, w.err = w.read(info)
	}
	return w.value, changed, w.err
}

func (w *watched[T]) read(info fs.FileInfo) (known fs.FileInfo, value T, err error) {
	if !info.Mode().IsRegular() {
		return info, value, fmt.Errorf("%s: not a regular file", w.path) // a FIFO would block for ever
	}
	file, err := os.OpenFile(w.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return info, value, err
	}
	defer file.Close()
	// What is checked is what is read, though the name may lead elsewhere by now.
	opened, err := file.Stat()
	if err != nil {
		return info, value, err
	}
	if w.check != nil {
		if err := w.check(opened); err != nil {
			return opened, value, fmt.Errorf("%s: %w", w.path, err)
		}
	}
	data, err := readAtMost(file, w.limit)
	if err == nil {
		value, err = w.parse(data)
	}
	if err != nil {
		return opened, *new(T), fmt.Errorf("%s: %w", w.path, err)
	}
	return opened, value, nil
}

// unchanged compares what changes with a file.
func unchanged(a, b fs.FileInfo) bool { return os.SameFile(a, b) && identity(a) == identity(b) }

// identity is another one when a file was written, replaced, or given another
// mode or owner. A copy may keep the size and the modification time of what it
// replaces; it cannot keep inode and change time.
func identity(info fs.FileInfo) string {
	text := fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), info.Mode())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" %d %d %d %d", stat.Dev, stat.Ino, stat.Uid, stat.Ctim.Nano())
	}
	return text
}
