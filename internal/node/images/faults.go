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

// fullDisk are the kernel's texts for a full disk or quota: containerd's API passes on only the text of an errno.
var fullDisk = []string{syscall.ENOSPC.Error(), syscall.EDQUOT.Error()}

// registryError is an error on the registry's side, including a full disk there.
type registryError struct{ error }

func (e *registryError) Error() string { return "registry: " + e.error.Error() }

func (e *registryError) Unwrap() error { return e.error }

// withKind wraps the error of a pull with release.ErrNoSpace if the node's disk is full.
func withKind(err error) error {
	if err == nil || errors.Is(err, release.ErrNoSpace) {
		return err
	}
	if _, ok := errors.AsType[*registryError](err); ok {
		return err
	}
	text := err.Error()
	if slices.ContainsFunc(fullDisk, func(cause string) bool { return strings.Contains(text, cause) }) {
		return fmt.Errorf("%w: %w", release.ErrNoSpace, err)
	}
	return err
}

// isResumable reports whether the next attempt can use the partial pull: not after wrong bytes (containerd: failed
// precondition), with which every attempt would start.
func isResumable(err error) bool {
	return !errors.Is(err, release.ErrNoSpace) && !errors.Is(err, release.ErrPlatform) &&
		!errors.Is(err, release.ErrNotFound) && !errdefs.IsFailedPrecondition(err)
}

// isTransient reports whether another attempt may succeed: containerd was restarted, or fails on the remains of a kill.
// Its overlayfs snapshotter renames a directory before it commits the record; the next snapshot with that number fails
// on the directory and removes it.
func isTransient(err error) bool {
	if errors.Is(err, errConnectionLost) {
		return true
	}
	_, registry := errors.AsType[*registryError](err)
	return err != nil && !registry && strings.Contains(err.Error(), syscall.EEXIST.Error())
}
