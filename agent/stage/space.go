// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Space reserves disk space for concurrent pulls, and records why releases could not be staged. It is safe for
// concurrent use.
type Space struct {
	mu       sync.Mutex
	reserved map[string]policy.SpaceNeeded // by running pulls, by release
	blocked  map[string]policy.SpaceNeeded // releases without space since the last poll, with their needs
	minSpace map[string]int64              // minimum size in bytes of releases whose pull filled the disk
	failed   map[string]error              // why releases could not be staged last time
}

// errCrowded: the space is enough for the pull alone, but not together with the running pulls.
var errCrowded = fmt.Errorf("%w: no space while other pulls run", release.ErrHeld)

// Begin begins a cycle. A poll checks blocked releases again: layers that they share with others may have been pulled
// since.
func (s *Space) Begin(poll bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = map[string]policy.SpaceNeeded{}
	if s.blocked == nil || poll {
		s.blocked = map[string]policy.SpaceNeeded{}
	}
}

// Blocked returns the releases without space and their needs.
func (s *Space) Blocked() map[string]policy.SpaceNeeded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.blocked)
}

// MinSpace returns the minimum sizes of releases whose pull filled the disk, for the record.
func (s *Space) MinSpace() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.minSpace)
}

// Restore restores the result of MinSpace.
func (s *Space) Restore(minSpace map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minSpace = maps.Clone(minSpace)
}

// reserve reserves the space for a pull; its error is a ShortageError or errCrowded. Other pulls count as a whole,
// though part of them is already on disk: overestimating delays a pull, underestimating fills the disk.
func (s *Space) reserve(key string, n policy.SpaceNeeded, fs policy.Filesystem, keep policy.Reserve) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Unpacked = max(n.Unpacked, s.minSpace[key])
	var others int64
	for _, o := range s.reserved {
		others += o.Compressed + o.Unpacked
	}
	if short, is := keep.Shortage(fs, n, 0); is {
		s.blocked[key] = n
		return short
	}
	if _, is := keep.Shortage(fs, n, others); is {
		return errCrowded
	}
	s.reserved[key] = n
	return nil
}

// overflowed raises the estimate of a pull that filled the disk and has cleaned up: the pull needs at least a tenth
// more than the space that is free now.
func (s *Space) overflowed(key string, fs policy.Filesystem, keep policy.Reserve, err error) error {
	if fs.Size == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.reserved[key]
	n.Unpacked = max(2*n.Unpacked, fs.Free+fs.Free/10+1)
	if s.minSpace == nil {
		s.minSpace = map[string]int64{}
	}
	s.blocked[key], s.minSpace[key] = n, n.Unpacked
	return fmt.Errorf("%w: %w", &policy.ShortageError{SpaceNeeded: n, Filesystem: fs, Keep: keep.Keep(fs)}, err)
}

// release ends the reservation of a pull that has ended.
func (s *Space) release(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, key)
	if err == nil {
		delete(s.minSpace, key)
		delete(s.blocked, key)
	}
}

// FilesystemOf returns the image filesystem for the status; zero if unknown.
func FilesystemOf(ctx context.Context, images node.ImageService, log *slog.Logger) policy.Filesystem {
	fs, err := images.Filesystem(ctx)
	if err != nil {
		log.Warn("free space unknown", "err", err)
		return policy.Filesystem{}
	}
	return fs
}

// SetFailure records why a release could not be staged; nil is ignored.
func (s *Space) SetFailure(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]error{}
	}
	if err != nil {
		s.failed[key] = err
	}
}

// ClearFailures begins a cycle that stages failed releases again; those that the source does not have, only after a
// poll.
func (s *Space) ClearFailures(poll bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.failed, func(_ string, err error) bool { return poll || !errors.Is(err, release.ErrNotFound) })
}

// Failure returns why a release could not be staged last time; nil if it was staged, or not tried.
func (s *Space) Failure(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[key]
}
