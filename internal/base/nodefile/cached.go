// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Cached is a trusted file that is read and parsed again when it changes. For a missing file it returns the zero value
// of T without an error. It is safe for concurrent use.
type Cached[T any] struct {
	Path     string
	Limit    int64 // bytes
	AnyOwner bool  // for public data that decides nothing on its own
	Parse    func([]byte) (T, error)

	mu    sync.Mutex
	stamp string // of the file that was the source of value or err; empty: none
	value T
	err   error
}

// Get returns the current value of the file, or why it cannot be used. changed is true once for each change.
func (f *Cached[T]) Get() (value T, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		changed, f.stamp, f.value, f.err = f.stamp != "", "", value, nil
	case err != nil:
		changed, f.stamp, f.value, f.err = f.err == nil, "", value, err
	case f.stamp != Stamp(info):
		changed = true
		f.load(info)
	}
	return f.value, changed, f.err
}

// load reads the file. The stamp is of the opened file, so a later change is detected.
func (f *Cached[T]) load(info fs.FileInfo) {
	data, opened, err := read(f.Path, f.Limit, f.AnyOwner)
	if opened != nil {
		info = opened
	}
	f.stamp = Stamp(info)
	if err == nil {
		f.value, err = f.Parse(data)
	}
	if f.err = err; err != nil {
		f.value, f.err = *new(T), fmt.Errorf("%s: %w", f.Path, err)
	}
}
