// SPDX-License-Identifier: Apache-2.0

// Package systemd is what the daemon and the service manager say to each
// other: the unit file beside this code and the messages of sd_notify(3). A
// test holds the two together.
//
// A Notifier tells the manager that the daemon is ready, reloads, stops, what
// it does in one line, and that it lives. It lives when its loop turns: a
// process whose loop hangs is not kept alive by a ticker of its own. Messages
// are advice. Where no manager listens (NOTIFY_SOCKET is unset) nothing
// happens; where one listens and cannot be reached, that is logged and the
// daemon goes on.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// maxStatus bounds the status line, in bytes: `systemctl status` shows one
// line, and names from a registry may stand in it.
const maxStatus = 512

// reloadPatience is how long a reload may take: an apply with its proof and its
// way back is given up after 11 minutes by default.
const reloadPatience = 15 * time.Minute

// Notifier sends the daemon's messages to the service manager. Its methods may
// be called by several goroutines.
type Notifier struct {
	log      *slog.Logger
	watchdog time.Duration // WATCHDOG_USEC; 0: no watchdog
	turned   atomic.Bool
}

// NewNotifier reads what the service manager expects (WATCHDOG_USEC and
// WATCHDOG_PID, see sd_watchdog_enabled(3)). Call Watch if there is to be a
// sign of life.
func NewNotifier(log *slog.Logger) (*Notifier, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("systemd: watchdog: %w", err)
	}
	return &Notifier{log: log, watchdog: watchdog}, nil
}

// Ready tells that the start, or the reload, is done.
func (n *Notifier) Ready(status string) {
	n.send(daemon.SdNotifyReady + "\n" + statusLine(status))
}

// Status sets the line that `systemctl status` shows: one line for people,
// without secrets.
func (n *Notifier) Status(status string) { n.send(statusLine(status)) }

// Reloading tells that the configuration is read anew. Ready must follow,
// whether the new configuration was taken or not. The time stamp is what
// Type=notify-reload of newer managers waits for. A reload waits for the cycle
// that runs, so it is told to take longer than TimeoutStartSec= allows.
func (n *Notifier) Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		n.log.Warn("service manager not notified", "message", daemon.SdNotifyReloading, "error", err)
		return
	}
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d\nEXTEND_TIMEOUT_USEC=%d",
		daemon.SdNotifyReloading, now.Nano()/1000, reloadPatience.Microseconds()))
}

// Stopping tells that the daemon ends on purpose.
func (n *Notifier) Stopping(status string) {
	n.send(daemon.SdNotifyStopping + "\n" + statusLine(status))
}

// Turned is the loop's report that it turned, or that its long step made
// progress. It costs next to nothing and sends nothing itself.
func (n *Notifier) Turned() { n.turned.Store(true) }

// Every is how often the loop should call Turned at least, so that each look
// of Watch finds a turn: a quarter of the manager's limit. It is 0 where the
// manager has no watchdog, and the loop may sleep as long as it likes.
func (n *Notifier) Every() time.Duration { return n.watchdog / 4 }

// Watch sends the sign of life until ctx ends: at half of the manager's limit,
// as sd_watchdog_enabled(3) asks, and only if the loop turned since the last
// one. It returns at once where the manager has no watchdog.
func (n *Notifier) Watch(ctx context.Context) {
	if n.watchdog == 0 {
		return
	}
	ticker := time.NewTicker(n.watchdog / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if n.turned.Swap(false) {
				n.send(daemon.SdNotifyWatchdog)
			}
		}
	}
}

func (n *Notifier) send(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		n.log.Warn("service manager not notified", "message", message, "error", err)
	}
}

// statusLine keeps the text from becoming a message of its own: each line of a
// datagram is one.
func statusLine(text string) string {
	return "STATUS=" + outside.Line(text, maxStatus)
}
