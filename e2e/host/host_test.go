// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestHostBoots installs the RPM in a real operating system and boots it until the service is ready. containerd and the
// registry are absent, and the boot does not wait for them.
func TestHostBoots(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, _ := installed(t, root, node.Options{})
		n.Registry.Down()
		h.WriteFile("/etc/image-update-agent/config.yaml", strings.Replace(story.HostConfig, "interval: 0", "interval: 1h", 1))
		story.StubKubelet(h)
		assert.Equal(t, "running", h.Boot(), "a unfailed: %s", h.Must("systemctl", "--failed", "--no-legend"))
		is := h.Show(host.Service, "ActiveState", "SubState", "NRestarts", "UnitFileState")
		assert.Equal(t, map[string]string{
			"ActiveState": "active", "SubState": "running", "NRestarts": "0", "UnitFileState": "enabled",
		}, is)

		order := h.Show(host.Service, "Before", "RequiredBy", "BoundBy")
		assert.ElementsMatch(t, []string{"multi-user.target", "shutdown.target"}, strings.Fields(order["Before"]))
		assert.Empty(t, order["RequiredBy"]+order["BoundBy"])
		assert.NotContains(t, strings.Fields(h.Show("kubelet.service", "After")["After"]), host.Service)
		node.Eventually(t, "the state of a node without a registry", story.Ready, func() error {
			if s := hostSays(t, h, "status"); s.State != status.StateStale && s.State != status.StateFailed {
				return fmt.Errorf("%s: %s", s.State, s.Reason)
			}
			return nil
		})
	})
}

// TestHostService does what an admin does to a service: stop it, restart it, break its configuration and repair it.
func TestHostService(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _, _ := installed(t, root, node.Options{})
		h.DropIn(host.Service, "[Service]\nRestartSec=20ms\n")
		require.Equal(t, "running", h.Boot())

		clean := map[string]string{"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0", "ExecMainCode": "1"}
		h.Must("systemctl", "stop", host.Service)
		assert.Equal(t, clean, h.Show(host.Service, "ActiveState", "Result", "ExecMainStatus", "ExecMainCode"))
		h.Must("systemctl", "start", host.Service)
		h.Must("systemctl", "kill", "--signal=SIGTERM", "--kill-whom=main", host.Service)
		h.Await(host.Service, "ActiveState", "inactive")
		assert.Equal(t, clean, h.Show(host.Service, "ActiveState", "Result", "ExecMainStatus", "ExecMainCode"), "a clean end is not restarted")
		h.Must("systemctl", "restart", host.Service)
		h.Must("systemctl", "reload", host.Service)

		h.WriteFile("/etc/image-update-agent/config.d/mine.yaml", "intervall: 2h\n")
		h.Exec("systemctl", "restart", "--no-block", host.Service)
		node.Eventually(t, "restarts, and each a longer while after the last", story.Ready, func() error {
			is := h.Show(host.Service, "NRestarts", "RestartUSecNext")
			if restarts, err := strconv.Atoi(is["NRestarts"]); err != nil || restarts < 2 || is["RestartUSecNext"] == "20ms" {
				return fmt.Errorf("%v", is)
			}
			return nil
		})
		_, grows := h.Show(host.Service, "RestartUSecNext")["RestartUSecNext"]
		assert.Equal(t, root == host.Systemd257, grows, "systemd 252 knows one delay only")
		assert.Contains(t, h.Journal(host.Service), "mine.yaml:1: unknown key \"intervall\"")
		h.WriteFile("/etc/image-update-agent/config.d/mine.yaml", "interval: 2h\n")
		h.Await(host.Service, "ActiveState", "active") // the boot has not started it
		node.Eventually(t, "the first observation, after which it knows its next check", story.Ready, func() error {
			if s := hostSays(t, h, "status"); s.NextCheck == nil {
				return errors.New(s.Reason)
			}
			return nil
		})
	})
}

// TestHostWatchdog hangs the daemon's loop: systemd kills the daemon, and the new one continues. The loop hangs in the
// kernel, because the disk of its record blocks all writes.
func TestHostWatchdog(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _, _ := installed(t, root, node.Options{Containerd: node.Containerd2})
		h.DropIn(host.Service, "[Service]\nWatchdogSec=30s\nRestartSec=20ms\n")
		h.OwnDisk("/var/lib/image-update-agent")
		require.Equal(t, "running", h.Boot())
		first := h.Show(host.Service, "MainPID")["MainPID"]

		thaw := h.Freeze("/var/lib/image-update-agent")
		blocked := h.Begin("image-update-agent", "check")
		h.Await(host.Service, "SubState", "stop-watchdog")
		thaw()
		assert.NotZero(t, blocked().Code)
		h.Await(host.Service, "NRestarts", "1")
		h.Await(host.Service, "ActiveState", "active")
		journal := h.Journal(host.Service)
		assert.Contains(t, journal, "Watchdog timeout (limit 30s)!")
		assert.Contains(t, journal, "Failed with result 'watchdog'.")
		assert.NotEqual(t, first, h.Show(host.Service, "MainPID")["MainPID"])
		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)
		assert.Equal(t, "1", h.Show(host.Service, "NRestarts")["NRestarts"], "a loop that turns is left alone")
	})
}
