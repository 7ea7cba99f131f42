// SPDX-License-Identifier: Apache-2.0

package systemd

import "context"

// The units that run hooks.
const (
	HookPath    = "image-update-agent-hook.path"
	HookService = "image-update-agent-hook.service"
)

// Active returns the ActiveState of a unit (active, inactive, failed, activating, ...),
// or not-found if there is no such unit. The address is the system bus's; the error is
// bus.ErrNone if there is none.
func Active(ctx context.Context, address, unit string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	s, err := readUnit(ctx, address, unit)
	if err == nil && s.load == "not-found" {
		return s.load, nil
	}
	return s.active, err
}
