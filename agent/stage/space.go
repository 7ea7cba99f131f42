// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Space reserves disk space for the pulls that run side by side. It is safe for
// concurrent use. The zero value has no pulls.
type Space struct {
	mu       sync.Mutex
	reserved map[string]policy.SpaceNeeded // what the pulls under way bring, by release
	blocked  map[string]policy.SpaceNeeded // what releases need for which there was no space, since the last poll
	atLeast  map[string]int64              // bytes that are not enough for releases whose pull filled the disk
	failed   map[string]error              // why releases could not be staged when that was tried last
}

// errCrowded: there is space, but not beside the pulls that are under way.
var errCrowded = fmt.Errorf("%w: no room beside other pulls", release.ErrHeld)

// Begin begins a cycle. What a poll finds may share layers with what came meanwhile:
// what had no space is looked at again.
func (s *Space) Begin(poll bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = map[string]policy.SpaceNeeded{}
	if s.blocked == nil || poll {
		s.blocked = map[string]policy.SpaceNeeded{}
	}
}

// Blocked is what releases need for which there was no space.
func (s *Space) Blocked() map[string]policy.SpaceNeeded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.blocked)
}

// AtLeast is what the record keeps of releases whose pull has filled the disk.
func (s *Space) AtLeast() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.atLeast)
}

// Learn takes over what the record has kept.
func (s *Space) Learn(atLeast map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atLeast = maps.Clone(atLeast)
}

// reserve reserves what a pull needs, or tells that there is no space. Pulls that run at
// the same time are counted whole, though part of them is on the disk already:
// overestimating delays a pull, underestimating fills the disk.
func (s *Space) reserve(key string, n policy.SpaceNeeded, fs policy.Filesystem, keep policy.Reserve) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Unpacked = max(n.Unpacked, s.atLeast[key])
	var others int64
	for _, o := range s.reserved {
		others += o.Compressed + o.Unpacked
	}
	if short, is := keep.Lacks(fs, n, 0); is {
		s.blocked[key] = n
		return short
	}
	if _, is := keep.Lacks(fs, n, others); is {
		return errCrowded
	}
	s.reserved[key] = n
	return nil
}

// overflowed learns from a pull that filled the disk all the same, and has cleaned up:
// the estimate was too small, or somebody else took the space. What is free now is not
// enough, by a tenth at least.
func (s *Space) overflowed(key string, fs policy.Filesystem, keep policy.Reserve, err error) error {
	if fs.Size == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.reserved[key]
	n.Unpacked = max(2*n.Unpacked, fs.Free+fs.Free/10+1)
	if s.atLeast == nil {
		s.atLeast = map[string]int64{}
	}
	s.blocked[key], s.atLeast[key] = n, n.Unpacked
	return fmt.Errorf("%w: %w", &policy.ShortageError{SpaceNeeded: n, Filesystem: fs, Keep: keep.Keep(fs)}, err)
}

// release ends the reservation of a pull that has ended.
func (s *Space) release(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, key)
	if err == nil {
		delete(s.atLeast, key)
		delete(s.blocked, key)
	}
}

// FilesystemOf is where images are; zero where that is not known. Then a pull that fills
// the disk cleans up after itself; without any the node would never be updated again.
func FilesystemOf(ctx context.Context, images node.ImageService, log *slog.Logger) policy.Filesystem {
	fs, err := images.Filesystem(ctx)
	if err != nil {
		log.Warn("free space is not known", "err", err)
		return policy.Filesystem{}
	}
	return fs
}

// Failed keeps why a release could not be staged; nil: it could.
func (s *Space) Failed(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]error{}
	}
	if err != nil {
		s.failed[key] = err
	}
}

// ForgetFailures begins a cycle that stages again what could not be staged.
func (s *Space) ForgetFailures() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = map[string]error{}
}

// Failure is why a release could not be staged when that was tried last; nil: it could,
// or was not tried.
func (s *Space) Failure(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[key]
}
