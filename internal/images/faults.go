// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// fullDisk are the kernel's words for a disk, or a quota, that is full. Through
// containerd's API nothing else of an errno arrives.
var fullDisk = []string{syscall.ENOSPC.Error(), syscall.EDQUOT.Error()}

// registryError is what went wrong on the registry's side, its own full disk
// included.
type registryError struct{ error }

func (e *registryError) Error() string { return "registry: " + e.error.Error() }

func (e *registryError) Unwrap() error { return e.error }

// named gives an error of a pull the name that callers know.
func named(err error) error {
	if err == nil || errors.Is(err, release.ErrNoSpace) {
		return err
	}
	if _, ok := errors.AsType[*registryError](err); ok {
		return err
	}
	said := err.Error()
	if slices.ContainsFunc(fullDisk, func(words string) bool { return strings.Contains(said, words) }) {
		return fmt.Errorf("%w: %w", release.ErrNoSpace, err)
	}
	return err
}

// resumable tells whether what a pull has brought is worth keeping for the next
// attempt: not where the image cannot be had or has no room, nor where bytes are
// wrong (containerd: failed precondition), for then every attempt would begin
// with the same wrong bytes.
func resumable(err error) bool {
	for _, end := range []error{release.ErrNoSpace, release.ErrPlatform, release.ErrNotFound} {
		if errors.Is(err, end) {
			return false
		}
	}
	return !errdefs.IsFailedPrecondition(err)
}

// isPassing tells that another attempt may do better: containerd has gone away,
// or stumbles over what it had begun when it was killed. Its overlayfs
// snapshotter renames a directory before it commits the record of it; the next
// snapshot of that number finds the directory, fails, and removes it.
func isPassing(err error) bool {
	if errors.Is(err, errGone) {
		return true
	}
	_, registry := errors.AsType[*registryError](err)
	return err != nil && !registry && strings.Contains(err.Error(), syscall.EEXIST.Error())
}
