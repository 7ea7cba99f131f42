// SPDX-License-Identifier: Apache-2.0

// Package systemd connects the daemon with the service manager: the unit files in this directory, the messages of
// sd_notify(3), and the states of units. A test compares unit files and code.
//
// A Notifier reports that the daemon is ready, reloads or stops, a status line, and a heartbeat for the watchdog. The
// loop sends the heartbeats: a loop that hangs sends none, and no ticker wakes a daemon that is idle. Without a manager
// (NOTIFY_SOCKET is unset) a Notifier does nothing; a message that cannot be sent is logged.
//
// Why the service is root without capabilities: containerd's socket, kubelet's directory and Salt's grains are root's,
// and another user would need groups that amount to root. Two processes would gain little and need a protocol. Why
// systemd holds the status socket: it outlives restarts, ends with the service, and does not start the daemon.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// maxStatus limits the status line, in bytes: it may contain names from a registry.
const maxStatus = 512

// reloadTimeout is how long a reload may take: an apply with its health check and rollback ends
// after 11 minutes by default.
const reloadTimeout = 15 * time.Minute

// Notifier sends messages to the service manager. It is safe for concurrent use.
type Notifier struct {
	log      *slog.Logger
	watchdog time.Duration // WATCHDOG_USEC; 0: no watchdog

	mu   sync.Mutex
	sent time.Time // time of the last heartbeat
}

// NewNotifier reads the watchdog's settings (WATCHDOG_USEC and WATCHDOG_PID, see
// sd_watchdog_enabled(3)).
func NewNotifier(log *slog.Logger) (*Notifier, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("systemd: watchdog: %w", err)
	}
	return &Notifier{log: log, watchdog: watchdog}, nil
}

// Ready reports that the start, or the reload, is done.
func (n *Notifier) Ready(status string) {
	n.send(daemon.SdNotifyReady + "\n" + statusLine(status))
}

// Status sets the status line of `systemctl status`. It must not contain secrets.
func (n *Notifier) Status(status string) { n.send(statusLine(status)) }

// Reloading reports a reload of the configuration. Ready must follow, also after an
// error. Type=notify-reload of newer managers needs the time stamp. A reload waits for
// the running cycle, so the message asks for more time than TimeoutStartSec= allows.
func (n *Notifier) Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		n.log.Warn("service manager not notified", "message", daemon.SdNotifyReloading, "error", err)
		return
	}
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d\nEXTEND_TIMEOUT_USEC=%d",
		daemon.SdNotifyReloading, now.Nano()/1000, reloadTimeout.Microseconds()))
}

// Stopping reports that the daemon is stopping.
func (n *Notifier) Stopping(status string) {
	n.send(daemon.SdNotifyStopping + "\n" + statusLine(status))
}

// Heartbeat reports that the loop works, or that a long step made progress, which may be hundreds of times a second. It
// sends a message only if an eighth of the manager's limit has passed since the last one.
func (n *Notifier) Heartbeat() {
	if n.watchdog == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.sent) >= n.watchdog/8 {
		n.sent = now
		n.send(daemon.SdNotifyWatchdog)
	}
}

// Every returns the longest time between two calls of Heartbeat: half of the manager's limit, as sd_watchdog_enabled(3)
// recommends; messages are at most five eighths of it apart. 0: there is no watchdog.
func (n *Notifier) Every() time.Duration { return n.watchdog / 2 }

func (n *Notifier) send(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		n.log.Warn("service manager not notified", "message", message, "error", err)
	}
}

// statusLine makes text one line, because each line of a datagram is a separate message.
func statusLine(text string) string {
	return "STATUS=" + outside.Line(text, maxStatus)
}

// Socket returns the manager's listening socket at path (systemd.socket(5)), nil if there is none. Close keeps the
// manager's descriptor and the file: the next daemon serves clients that connect in between.
//
// Socket closes and logs other sockets, as after a change of path in the configuration. Call it once: it removes the
// descriptors and their variables (sd_listen_fds(3)).
func Socket(path string, log *slog.Logger) net.Listener {
	var found net.Listener
	for _, file := range activation.Files(true) {
		listener, err := net.FileListener(file)
		_ = file.Close() // the listener has its own descriptor
		switch {
		case err != nil:
			log.Warn("cannot use a socket of the service manager", "name", file.Name(), "err", err)
		case found == nil && listener.Addr().Network() == "unix" && listener.Addr().String() == path:
			found = listener
		default:
			log.Warn("cannot use a socket of the service manager", "name", file.Name(),
				"at", listener.Addr().String(), "wanted", path)
			_ = listener.Close()
		}
	}
	return found
}

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
