// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent"
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
	if err == nil || errors.Is(err, agent.ErrNoSpace) {
		return err
	}
	if _, ok := errors.AsType[*registryError](err); ok {
		return err
	}
	said := err.Error()
	if slices.ContainsFunc(fullDisk, func(words string) bool { return strings.Contains(said, words) }) {
		return fmt.Errorf("%w: %w", agent.ErrNoSpace, err)
	}
	return err
}
