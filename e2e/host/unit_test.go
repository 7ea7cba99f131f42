// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const (
	socketUnit  = "image-update-agent.socket"
	renderUnit  = "image-update-agent-render.service"
	hostConfigD = "/etc/image-update-agent/config.d/mine.yaml"
)

// TestHostUnits uses the shipped units on a systemd that knows all of their keys and on one that does not: it checks
// the daemon's sandbox, the reload, and that a restart loses no client.
func TestHostUnits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _, _ := installed(t, root, node.Options{Containerd: node.Containerd2})
		story.StubKubelet(h)
		require.Equal(t, "running", h.Boot())
		kind := map[host.Root]string{host.Systemd252: "notify", host.Systemd257: "notify-reload"}[root]
		assert.Equal(t, kind, h.Show(host.Service, "Type")["Type"])

		isWithoutPowers(t, h)
		reloads(t, h)
		outlivesRestarts(t, h)
		staysStopped(t, h)
		assert.Equal(t, map[string]string{"Result": "success", "ExecMainStatus": "0"},
			h.Show(renderUnit, "Result", "ExecMainStatus"), h.Journal(renderUnit))
	})
}

// isWithoutPowers asserts the daemon's user and capabilities as the kernel reports them.
func isWithoutPowers(t *testing.T, h *host.Host) {
	t.Helper()
	proc := "/proc/" + h.Show(host.Service, "MainPID")["MainPID"]
	is := map[string]string{}
	for line := range strings.Lines(h.ReadFile(proc + "/status")) {
		name, value, _ := strings.Cut(line, ":")
		is[name] = strings.TrimSpace(value)
	}
	none := strings.Repeat("0", 16)
	for name, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		assert.Equal(t, want, is[name], name)
	}
	for _, ids := range []string{"uid_map", "gid_map"} {
		assert.Equal(t, []string{"0", "0", "1"}, strings.Fields(h.ReadFile(proc+"/"+ids)), ids)
	}
	s := hostSays(t, h, "check")
	story.IsCurrent(t, s)
	assert.Contains(t, h.Exec("image-update-agent", "doctor").Stdout, "unit: the daemon can write all its files\n")
}

// reloads asserts that `systemctl reload` returns once the new configuration is active, or fails with the reason.
func reloads(t *testing.T, h *host.Host) {
	t.Helper()
	require.Nil(t, hostSays(t, h, "status").NextCheck)
	h.WriteFile(hostConfigD, "interval: 6h\n")
	h.Must("systemctl", "reload", host.Service)
	next := hostSays(t, h, "status").NextCheck
	require.NotNil(t, next)

	h.WriteFile(hostConfigD, "interval: 6h\nintervall: 2h\n")
	assert.NotZero(t, h.Exec("systemctl", "reload", host.Service).Code)
	assert.Contains(t, h.Journal(host.Service), `image-update-agent: error: `+hostConfigD+`:2: unknown key "intervall"`)
	h.WriteFile(hostConfigD, "interval: 6h\n")
	assert.Equal(t, next, hostSays(t, h, "status").NextCheck, "the old one stays")
	is := h.Show(host.Service, "ActiveState", "SubState", "NRestarts")
	assert.Equal(t, map[string]string{"ActiveState": "active", "SubState": "running", "NRestarts": "0"}, is)
	h.Must("systemctl", "reload", host.Service)
}

// outlivesRestarts asserts that a client that asks for the status gets it even while the daemon is stopped, killed or
// started.
func outlivesRestarts(t *testing.T, h *host.Host) {
	t.Helper()
	// On a busy machine the daemon may take longer to start than a client waits, which is 5 s.
	const asking = `until [ -e /run/enough ]; do
		began=$(date +%s)
		if image-update-agent status --output json >/dev/null 2>/run/said && [ ! -s /run/said ]; then
			asked=$((asked + 1)); echo $asked >/run/asked
		elif [ $(($(date +%s) - began)) -lt 5 ]; then
			touch /run/unheard; cat /run/said; exit 1
		fi
	done`
	h.DropIn(host.Service, "[Service]\nRestartSec=20ms\n")
	socket := h.Must("stat", "--format=%i %A", "/run/image-update-agent/status.sock")
	end := h.Begin("sh", "-c", asking)
	asked := func() string { return h.Exec("cat", "/run/asked").Stdout }
	for _, how := range []string{"restart", "restart", "kill --signal=SIGKILL", "restart"} {
		before, starts := asked(), h.Show(host.Service, "ExecMainStartTimestampMonotonic")
		h.Must(append(append([]string{"systemctl"}, strings.Fields(how)...), host.Service)...)
		node.Eventually(t, "the next daemon", story.Ready, func() error {
			now := h.Show(host.Service, "ExecMainStartTimestampMonotonic", "ActiveState")
			if now["ExecMainStartTimestampMonotonic"] == starts["ExecMainStartTimestampMonotonic"] || now["ActiveState"] != "active" {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		node.Eventually(t, "an answer", story.Ready, func() error {
			if h.Exec("test", "-e", "/run/unheard").Code == 0 {
				t.Fatalf("after %s: %v", how, end())
			}
			if asked() == before {
				return fmt.Errorf("asked %s", before)
			}
			return nil
		})
	}
	h.Must("touch", "/run/enough")
	assert.Equal(t, host.Result{}, end())
	assert.Equal(t, socket, h.Must("stat", "--format=%i %A", "/run/image-update-agent/status.sock"))
}

// staysStopped asserts that a stop of the service also stops its socket, so that monitoring does not start the daemon
// again.
func staysStopped(t *testing.T, h *host.Host) {
	t.Helper()
	h.Must("systemctl", "stop", host.Service)
	h.Await(socketUnit, "ActiveState", "inactive")
	r := h.Exec("image-update-agent", "status")
	assert.Zero(t, r.Code)
	assert.Contains(t, r.Stderr, "no daemon answers")
	assert.Equal(t, "inactive", h.Show(host.Service, "ActiveState")["ActiveState"])
	h.Must("systemctl", "start", host.Service)
	assert.Equal(t, "active", h.Show(socketUnit, "ActiveState")["ActiveState"])
	assert.Equal(t, "666", h.Must("stat", "--format=%a", "/run/image-update-agent/status.sock"))
	assert.Equal(t, "600", h.Must("stat", "--format=%a", "/run/image-update-agent/agent.sock"))
}

// othersGroup is the drop-in of docs/configuration.md for files of other groups.
const othersGroup = "[Service]\nPrivateUsers=no\nCapabilityBoundingSet=CAP_CHOWN\nSystemCallFilter=@chown\n"

// TestHostFilesOfOthers checks that the agent does not replace a file of another group, that status and doctor report
// it, and that the drop-in lets the agent write it.
func TestHostFilesOfOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, _ := installed(t, root, node.Options{Containerd: node.Containerd2})
		require.Equal(t, "running", h.Boot())
		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)
		const grains = "/etc/salt/grains"
		owner := func() string { return h.Must("stat", "--format=%u:%g %i", grains) }
		h.Must("chgrp", "adm", grains)
		before, text := owner(), h.ReadFile(grains)
		assert.Contains(t, before, "0:4 ", "Debian's adm")

		n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.1", node.Image{})
		s = hostSays(t, h, "check")
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "write "+grains+": keep owner 0:65534")
		assert.Equal(t, before, owner())
		assert.Equal(t, text, h.ReadFile(grains))
		assert.Contains(t, h.Exec("image-update-agent", "doctor").Stdout,
			"warning  unit: "+grains+": the daemon cannot keep the group 4 of the file, so it does not write it\n")

		require.Contains(t, story.Read(t, story.Checkout(t), "docs/configuration.md"), "    "+strings.ReplaceAll(strings.TrimSuffix(othersGroup, "\n"), "\n", "\n    "))
		h.DropIn(host.Service, othersGroup)
		h.Must("systemctl", "restart", host.Service)
		s = hostSays(t, h, "check")
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Contains(t, h.ReadFile(grains), "image_update_available: true")
		assert.Contains(t, owner(), "0:4 ")
	})
}
