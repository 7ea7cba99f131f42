// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Reserve is the space to keep free on the image filesystem: the largest of the three.
type Reserve struct {
	Bytes   int64
	Percent int // of the filesystem
	// HighMark is the usage in percent at which kubelet begins to remove images; 0: unknown.
	HighMark int
}

// Keep returns the bytes to keep free on a filesystem.
func (r Reserve) Keep(fs Filesystem) int64 {
	free := max(r.Bytes, fs.Size/100*int64(r.Percent))
	if r.HighMark > 0 {
		free = max(free, fs.Size/100*int64(100-r.HighMark)+1)
	}
	return free
}

// ShortageError says that a pull waits for disk space.
type ShortageError struct {
	SpaceNeeded
	Filesystem
	Keep int64 `json:"keep"` // bytes to keep free
}

// Error has all figures, so that a reader knows how much space to free.
func (e *ShortageError) Error() string {
	return fmt.Sprintf("needs %s to pull and %s to unpack with %s of %s kept free, but only %s are free on %s",
		Bytes(e.Compressed), Bytes(e.Unpacked), Bytes(e.Keep), Bytes(e.Size), Bytes(e.Free), e.Path)
}

// Unwrap returns ErrHeld.
func (e *ShortageError) Unwrap() error { return release.ErrHeld }

// Bytes formats a number of bytes for people.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// Shortage reports whether a filesystem has too little space for a pull. others are the bytes
// that other pulls still need.
func (r Reserve) Shortage(fs Filesystem, n SpaceNeeded, others int64) (*ShortageError, bool) {
	keep := r.Keep(fs)
	if fs.Size == 0 || n.Compressed+n.Unpacked+others+keep <= fs.Free {
		return nil, false
	}
	return &ShortageError{n, fs, keep}, true
}

// SpaceNeeded is the number of bytes that a pull adds. Unpacked is an estimate, because image manifests do not have it.
type SpaceNeeded struct {
	Compressed int64 `json:"compressed"`
	Unpacked   int64 `json:"unpacked"`
}

// Filesystem is the image filesystem, with its size in bytes.
type Filesystem struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Free int64  `json:"free"` // as kubelet counts it: without the space reserved for root
}
