// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Service is the agent's.
const Service = "image-update-agent.service"

// Enable enables units as a product's preset does, in a host that is off or on.
func (h *Host) Enable(units ...string) {
	h.tb.Helper()
	argv := append([]string{"systemctl", "enable", "--quiet"}, units...)
	if h.Booted() {
		h.Must(argv...)
		return
	}
	h.node.Shell("chroot " + h.tree + " " + strings.Join(argv, " "))
}

// Show reads properties of a unit, or with an empty name of the manager: `systemctl show`.
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

// PID is the main process of a unit as this process sees it.
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

// Journal is what a unit, and systemd about it, said since the boot: one message a line.
func (h *Host) Journal(unit string) string {
	h.tb.Helper()
	h.Must("journalctl", "--sync") // what was said is taken down some time later
	return h.Must("journalctl", "--boot", "--output=cat", "--no-pager", "--unit="+unit)
}

// DropIn adds to a unit, and tells the manager of it where there is one.
func (h *Host) DropIn(unit, text string) {
	h.tb.Helper()
	h.WriteFile("/etc/systemd/system/"+unit+".d/test.conf", text)
	if h.Booted() {
		h.Must("systemctl", "daemon-reload")
	}
}
