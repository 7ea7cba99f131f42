// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"context"
	"errors"
)

// ErrNoRegistry is returned for a text that is not a registry as in the first part of an image's name.
var ErrNoRegistry = errors.New("no registry")

// Files changes the hosts.toml files of registries. Both methods report whether anything has changed, and return an
// error that is release.ErrHeld for a file that they leave as it is.
type Files interface {
	// Enable adds the local registry to the hosts of a registry.
	Enable(ctx context.Context, registry string, at Position) (changed bool, err error)
	// Disable removes it, and restores the file from before.
	Disable(ctx context.Context, registry string) (changed bool, err error)
}
