// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Inhibitor has logind delay a shutdown or reboot of the node while something
// must not be left half done.
type Inhibitor struct {
	Bus string // D-Bus address of the system bus; empty: there is none
}

// Inhibit takes a delay lock; why is shown by `systemd-inhibit --list`. The lock
// is held until release or the end of the process, since it is a file descriptor
// (org.freedesktop.login1(5), "Inhibitor Locks"); logind waits no longer than
// its InhibitDelayMaxSec=, 5 s by default. release is never nil, also with an
// error, and may be called again.
//
// Where there is no bus or no logind, nobody is there to be delayed: no error.
func (i Inhibitor) Inhibit(ctx context.Context, why string) (release func(), err error) {
	nothing := func() {}
	if i.Bus == "" {
		return nothing, nil
	}
	ctx, cancel := context.WithTimeout(ctx, busPatience)
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
	return func() { _ = lock.Close() }, nil // closed a second time, it is closed
}
