// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Reserve is what stays free on the image filesystem: the largest of the three.
// The zero value reserves nothing.
type Reserve struct {
	Bytes   int64
	Percent int // of the filesystem
	// HighMark is the usage in percent at which kubelet begins to collect images:
	// a pull that reached it would cost the node others. 0: there is none.
	HighMark int
}

// Keep is what must stay free of a filesystem.
func (r Reserve) Keep(fs Filesystem) int64 {
	free := max(r.Bytes, fs.Size/100*int64(r.Percent))
	if r.HighMark > 0 {
		free = max(free, fs.Size/100*int64(100-r.HighMark)+1)
	}
	return free
}

// ShortageError is a pull that waits for room, with the figures.
type ShortageError struct {
	SpaceNeeded
	Filesystem
	Keep int64 `json:"keep"` // bytes that stay free
}

// Error tells all figures: who reads it wants to know how much to free.
func (e *ShortageError) Error() string {
	return fmt.Sprintf("needs %s to pull and %s to unpack, and %s of %s stay free: only %s are free on %s",
		Bytes(e.Compressed), Bytes(e.Unpacked), Bytes(e.Keep), Bytes(e.Size), Bytes(e.Free), e.Path)
}

// Unwrap is ErrHeld: it is not now, not never.
func (e *ShortageError) Unwrap() error { return release.ErrHeld }

// Bytes is a number of bytes for people.
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

// Lacks tells whether there is no room for a pull beside what others are about
// to bring.
func (r Reserve) Lacks(fs Filesystem, n SpaceNeeded, others int64) (*ShortageError, bool) {
	keep := r.Keep(fs)
	if fs.Size == 0 || n.Compressed+n.Unpacked+others+keep <= fs.Free {
		return nil, false
	}
	return &ShortageError{n, fs, keep}, true
}

// SpaceNeeded is what a pull would bring that is not on the node yet, in bytes.
// Unpacked is an estimate: no manifest tells it.
type SpaceNeeded struct{ Compressed, Unpacked int64 }

// Filesystem is where the node's images are, and how full it is, in bytes.
type Filesystem struct {
	Path string
	Size int64
	Free int64 // as kubelet counts it: without what is reserved for root
}
