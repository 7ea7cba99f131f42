// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
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

// keep is what must stay free of a filesystem.
func (r Reserve) keep(fs Filesystem) int64 {
	free := max(r.Bytes, fs.Size/100*int64(r.Percent))
	if r.HighMark > 0 {
		free = max(free, fs.Size/100*int64(100-r.HighMark)+1)
	}
	return free
}

// ShortageError is a pull that waits for room, with the figures.
type ShortageError struct {
	Need
	Filesystem
	Keep int64 `json:"keep"` // bytes that stay free
}

// Error tells all figures: who reads it wants to know how much to free.
func (e *ShortageError) Error() string {
	return fmt.Sprintf("needs %s to pull and %s to unpack, and %s of %s stay free: only %s are free on %s",
		Bytes(e.Compressed), Bytes(e.Unpacked), Bytes(e.Keep), Bytes(e.Size), Bytes(e.Free), e.Path)
}

// Unwrap is ErrHeld: it is not now, not never.
func (e *ShortageError) Unwrap() error { return ErrHeld }

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

// lacks tells whether there is no room for a pull beside what others are about
// to bring.
func (r Reserve) lacks(fs Filesystem, n Need, others int64) (*ShortageError, bool) {
	keep := r.keep(fs)
	if fs.Size == 0 || n.Compressed+n.Unpacked+others+keep <= fs.Free {
		return nil, false
	}
	return &ShortageError{n, fs, keep}, true
}

// filesystem is where images are; zero where that is not known. Then a pull that
// fills the disk cleans up after itself; without any the node would never be
// updated again.
func (a *Agent) filesystem(ctx context.Context) Filesystem {
	fs, err := a.Pods.Filesystem(ctx)
	if err != nil {
		a.Log.Warn("room not known", "cycle", a.cycle, "err", err)
		return Filesystem{}
	}
	return fs
}

// errCrowded: there is room, but not beside the pulls that are under way.
var errCrowded = fmt.Errorf("%w: no room beside other pulls", ErrHeld)

// room answers a pull that asks whether it may begin. Pulls that run at the same
// time are counted whole, though part of them is on the disk already: who errs
// to this side waits for them, who errs to the other fills the disk.
func (a *Agent) room(key string) func(context.Context, Need) error {
	return func(ctx context.Context, n Need) error {
		fs := a.filesystem(ctx)
		a.pulls.Lock()
		defer a.pulls.Unlock()
		n.Unpacked = max(n.Unpacked, a.least[key])
		var others int64
		for _, o := range a.coming {
			others += o.Compressed + o.Unpacked
		}
		if short, is := a.Policy.Reserve.lacks(fs, n, 0); is {
			a.wanting[key] = n
			return short
		}
		if _, is := a.Policy.Reserve.lacks(fs, n, others); is {
			return errCrowded
		}
		a.coming[key] = n
		return nil
	}
}

// overflowed learns from a pull that filled the disk all the same, and has
// cleaned up: the estimate was too small, or somebody else took the room. What
// is free now is not enough, by a tenth at least.
func (a *Agent) overflowed(ctx context.Context, key string, err error) error {
	fs := a.filesystem(ctx)
	if fs.Size == 0 {
		return err
	}
	a.pulls.Lock()
	defer a.pulls.Unlock()
	n := a.coming[key]
	n.Unpacked = max(2*n.Unpacked, fs.Free+fs.Free/10+1)
	if a.least == nil {
		a.least = map[string]int64{}
	}
	a.wanting[key], a.least[key] = n, n.Unpacked
	return fmt.Errorf("%w: %w", &ShortageError{n, fs, a.Policy.Reserve.keep(fs)}, err)
}

// endPull forgets a pull that has ended.
func (a *Agent) endPull(key string, err error) {
	a.pulls.Lock()
	defer a.pulls.Unlock()
	delete(a.coming, key)
	if err == nil {
		delete(a.least, key)
		delete(a.wanting, key)
	}
}

// short tells that a release waits for room, by what its last pull said that it
// needs: so nobody is asked anew while there is none.
func (d *decider) short(r Release) (*ShortageError, bool) {
	n, is := d.inv.Wanting[releaseKey(r.Repository, r.Digest)]
	if !is || d.inv.has(r.Digest) { // what kubelet has pulled meanwhile needs none
		return nil, false
	}
	return d.policy.Reserve.lacks(d.inv.Filesystem, n, 0)
}

func (d *decider) isShort(i ImagePlan) bool {
	_, is := d.short(i.Target)
	return is
}

// cramped holds what waits for room, and notes how much of it is missing.
func (d *decider) cramped(images []ImagePlan) []Hold {
	var reasons []string
	for n, i := range images {
		if s, is := d.short(i.Target); is {
			images[n].Shortage = s
			reasons = append(reasons, releaseName(i.Target)+": "+s.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return []Hold{{Name: HoldDisk, Reason: strings.Join(reasons, "; ")}}
}

// releaseName is a release as a person calls it.
func releaseName(r Release) string { return r.Repository + ":" + r.Name() }
