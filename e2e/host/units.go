// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Service is the agent's unit.
const Service = "image-update-agent.service"

// Enable enables units as a product's preset does. The host may be on or off.
func (h *Host) Enable(units ...string) {
	h.tb.Helper()
	argv := append([]string{"systemctl", "enable", "--quiet"}, units...)
	if h.Booted() {
		h.Must(argv...)
		return
	}
	h.node.Shell("chroot " + h.tree + " " + strings.Join(argv, " "))
}

// Show returns properties of a unit as `systemctl show` does; an empty name is the manager itself.
func (h *Host) Show(unit string, properties ...string) map[string]string {
	h.tb.Helper()
	argv := []string{"systemctl", "show", "--property=" + strings.Join(properties, ",")}
	if unit != "" {
		argv = append(argv, unit)
	}
	shown := map[string]string{}
	for line := range strings.Lines(h.Must(argv...)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		shown[name] = value
	}
	return shown
}

// PID returns the main process of a unit in this process's PID namespace.
func (h *Host) PID(unit string) string {
	h.tb.Helper()
	inside := h.Show(unit, "MainPID")["MainPID"]
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.leader))
	if err != nil {
		h.tb.Fatalf("host: %v", err)
	}
	namespaces, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		h.tb.Fatalf("host: %v", err)
	}
	for _, file := range namespaces {
		pid := strings.Split(file, "/")[2]
		if is, gone := os.Readlink(file); gone == nil && is == own && innermost(pid) == inside {
			return pid
		}
	}
	h.tb.Fatalf("host: %s: no process %s", unit, inside)
	return ""
}

// Await waits until a property of a unit has a value.
func (h *Host) Await(unit, property, value string) {
	h.tb.Helper()
	node.Eventually(h.tb, "host: "+unit, node.Patience, func() error {
		if got := h.Show(unit, property)[property]; got != value {
			return fmt.Errorf("%s=%s, want %s", property, got, value)
		}
		return nil
	})
}

// Journal returns the messages of a unit, and of systemd about it, since the boot: one per line.
func (h *Host) Journal(unit string) string {
	h.tb.Helper()
	h.Must("journalctl", "--sync") // journald stores messages with a delay
	return h.Must("journalctl", "--boot", "--output=cat", "--no-pager", "--unit="+unit)
}

// DropIn adds a drop-in to a unit, and reloads the manager if the host is on.
func (h *Host) DropIn(unit, text string) {
	h.tb.Helper()
	h.WriteFile("/etc/systemd/system/"+unit+".d/test.conf", text)
	if h.Booted() {
		h.Must("systemctl", "daemon-reload")
	}
}
