// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"encoding/json"
	"errors"
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
	hookPath    = "image-update-agent-hook.path"
	hookService = "image-update-agent-hook.service"
	plugin      = "/usr/libexec/health-checker/image-update-agent.sh"
	quick       = "/usr/local/lib/quick" // directory with a shorter sleep, for the plugin's PATH

	hookConfig = story.HostConfig + "hooks: {saltRefresh: true, exec: /usr/local/sbin/tell}\n"
	saltCall   = "#!/bin/sh\necho \"$*\" >>/var/log/salt-call\n"
	tell       = "#!/bin/sh\ncat >>/var/log/told\n"
	// A hook that waits until the test lets it end.
	slowTell = tell + "cat /run/hook-wait\n"
	badTell  = "#!/bin/sh\necho no luck\nexit 1\n"
)

// hostProgram writes an executable file of a host.
func hostProgram(h *host.Host, name, text string) {
	h.WriteFile(name, text)
	h.Must("chmod", "755", name)
}

// change is one line that the hook got on standard input.
type change struct {
	State, Was                       string
	Offered, Staged, Applied, Failed []struct{ To string }
}

// told waits for the nth change, and returns it.
func told(t *testing.T, h *host.Host, n int) change {
	t.Helper()
	var c change
	node.Eventually(t, "the hook", story.Ready, func() error {
		lines := strings.Split(h.Exec("cat", "/var/log/told").Stdout, "\n")
		if len(lines) <= n {
			return fmt.Errorf("%d changes are told, want %d", len(lines)-1, n)
		}
		return json.Unmarshal([]byte(lines[n-1]), &c)
	})
	return c
}

// TestHostHook checks that a change of the daemon starts the hook's service through its path unit, and that a failure
// of the hook affects nothing else.
func TestHostHook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2, Kubelet: true})
		require.Equal(t, "running", h.Boot())
		h.Await(hookPath, "ActiveState", "active")
		h.Await(hookService, "ActiveState", "inactive")
		hostProgram(h, "/usr/bin/salt-call", saltCall)
		hostProgram(h, "/usr/local/sbin/tell", tell)
		h.WriteFile("/etc/image-update-agent/config.yaml", hookConfig)
		h.Must("systemctl", "reload", host.Service)
		before := h.Show(host.Service, "MainPID", "NRestarts")

		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		hostSays(t, h, "check")
		first := told(t, h, 1)
		assert.Empty(t, first.Was)
		rests(t, h, "inactive")
		lines := strings.Count(h.ReadFile("/var/log/told"), "\n")
		n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{})
		h.Must("mkfifo", "/run/hook-wait")
		hostProgram(h, "/usr/local/sbin/tell", slowTell)
		s = hostSays(t, h, "check")
		require.Equal(t, status.StateStaged, s.State, s.Reason)
		c := awaitStaged(t, h, lines+1)
		assert.Equal(t, "4.0.0-rev1-build1.2", c.Staged[0].To)

		// The hook still runs. It gets later changes after it has ended.
		h.Must("image-update-agent", "apply")
		story.Answers(t, port, "4.0.0-rev1-build1.2")
		h.Await(hookService, "ActiveState", "activating")
		lines = strings.Count(h.ReadFile("/var/log/told"), "\n")
		hostProgram(h, "/usr/local/sbin/tell", tell)
		h.Must("sh", "-c", "echo >/run/hook-wait")
		c = told(t, h, lines+1)
		require.Len(t, c.Applied, 1)
		assert.Equal(t, "4.0.0-rev1-build1.2", c.Applied[0].To)
		assert.Equal(t, "current", c.State)
		assert.Contains(t, h.ReadFile("/var/log/salt-call"), "saltutil.refresh_grains\n")
		assert.Regexp(t, `(?m)^ok +hooks: `, h.Exec("image-update-agent", "doctor").Stdout)

		t.Run("that fails", func(t *testing.T) { hookFails(t, h, n, lines+1) })
		assert.Equal(t, before, h.Show(host.Service, "MainPID", "NRestarts"), "the daemon has not noticed")
		t.Run("health-checker", func(t *testing.T) { health(t, h) })
	})
}

// rests waits until no run of the hook is due or running, and asserts the state in which the last run left the service.
// The daemon has written all changes of a verb before the verb ends.
func rests(t *testing.T, h *host.Host, state string) {
	t.Helper()
	node.Eventually(t, "the hooks rest", story.Ready, func() error {
		if h.Exec("test", "-e", "/run/image-update-agent/hook.due").Code == 0 {
			return errors.New("one is due")
		}
		if is := h.Show(hookService, "ActiveState")["ActiveState"]; is != state {
			return fmt.Errorf("%s, want %s", is, state)
		}
		return nil
	})
}

// awaitStaged returns the nth or a later change that reports a staged release; changes of other kinds may precede it.
func awaitStaged(t *testing.T, h *host.Host, n int) change {
	t.Helper()
	for ; ; n++ {
		if c := told(t, h, n); len(c.Staged) > 0 {
			return c
		}
		h.Must("sh", "-c", "echo >/run/hook-wait")
	}
}

// hookFails lets the hook fail after n changes: the next run gets all of them again.
func hookFails(t *testing.T, h *host.Host, n *node.Node, lines int) {
	t.Helper()
	rests(t, h, "inactive")
	hostProgram(h, "/usr/local/sbin/tell", badTell)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.3", node.Image{})
	require.Equal(t, status.StateStaged, hostSays(t, h, "check").State)
	rests(t, h, "failed")
	assert.Contains(t, h.Journal(hookService), "no luck")
	assert.Contains(t, h.Exec("image-update-agent", "doctor").Stdout, "hooks: the last run of the hooks failed")
	assert.Equal(t, "active", h.Show(hookPath, "ActiveState")["ActiveState"])

	hostProgram(h, "/usr/local/sbin/tell", tell)
	h.Must("image-update-agent", "hold", "--all")
	c := told(t, h, lines+1)
	assert.Equal(t, []string{"current", "held"}, []string{c.Was, c.State})
	require.Len(t, c.Staged, 1)
	assert.Equal(t, "4.0.0-rev1-build1.3", c.Staged[0].To)
	h.Await(hookService, "ActiveState", "inactive")
}

// health runs the health-checker plugin: it fails when the system cannot run the program, and passes when only the
// admin's settings are wrong.
func health(t *testing.T, h *host.Host) {
	t.Helper()
	hostProgram(h, quick+"/sleep", "#!/bin/sh\nexec /bin/sleep 0.1\n")
	assert.Contains(t, h.Must(plugin, "check"), "running")
	h.WriteFile("/etc/image-update-agent/config.yaml", "no: such\n")
	h.Exec("systemctl", "restart", host.Service)
	checked(t, h, 0, "its settings are wrong")
	h.WriteFile("/etc/image-update-agent/config.yaml", story.HostConfig)
	h.Must("chmod", "a-x", "/usr/bin/image-update-agent")
	h.Exec("systemctl", "restart", host.Service)
	checked(t, h, 1, "cannot be started: status 203")
	h.Must("chmod", "a+x", "/usr/bin/image-update-agent")
	h.DropIn(host.Service, "[Service]\nExecStart=\nExecStart=/usr/bin/not-there run\n")
	h.Exec("systemctl", "restart", host.Service)
	checked(t, h, 0, "cannot be started: status 203, and its unit was changed on this node")
	h.Must(plugin, "stop")
	h.Await(hookPath, "ActiveState", "inactive") // it stops with the daemon
}

// checked runs the plugin with a short sleep until it has this result: a run that sees the service start passes and is
// ignored.
func checked(t *testing.T, h *host.Host, code int, text string) {
	t.Helper()
	node.Eventually(t, "the plugin", story.Ready, func() error {
		r := h.Exec("env", "PATH="+quick+":/usr/bin:/bin", plugin, "check")
		if r.Code != code || !strings.Contains(r.Stdout+r.Stderr, text) {
			return fmt.Errorf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
		return nil
	})
}
