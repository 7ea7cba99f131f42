// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// Inhibitor makes logind delay a shutdown or reboot of the node.
type Inhibitor struct {
	Bus string // D-Bus address of the system bus; empty if there is none
}

// Inhibit takes a delay lock; `systemd-inhibit --list` shows the reason. The lock is a file descriptor, held until
// release is called or the process ends (org.freedesktop.login1(5), "Inhibitor Locks"); logind waits at most
// InhibitDelayMaxSec=, 5 s by default. release is never nil, also with an error, and may be called twice. Without a bus
// or logind there is no lock and no error.
func (i Inhibitor) Inhibit(ctx context.Context, why string) (release func(), err error) {
	nothing := func() {}
	if i.Bus == "" {
		return nothing, nil
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	lock, err := bus.Take(ctx, i.Bus, bus.Question{
		Service: "org.freedesktop.login1", Path: "/org/freedesktop/login1",
		Method: "org.freedesktop.login1.Manager.Inhibit",
		Args:   []any{"shutdown", "image-update-agent", outside.Text(why), "delay"},
	})
	switch {
	case errors.Is(err, bus.ErrNone), errors.Is(err, bus.ErrAbsent):
		return nothing, nil
	case err != nil:
		return nothing, fmt.Errorf("systemd: delay a shutdown: %w", err)
	}
	return func() { _ = lock.Close() }, nil // closing it twice is safe
}
