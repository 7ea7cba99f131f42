// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The service manager is told when the daemon is ready, how it is, and that it
// stops; SIGHUP takes a good configuration and refuses a bad one.
func TestDaemonAndServiceManager(t *testing.T) {
	t.Parallel()
	n := started(t)
	socket := notifySocket(t, n)
	n.WriteFile(configFile, "interval: 0\n")
	daemon := n.StartAgentWith([]string{"NOTIFY_SOCKET=" + socket.path}, "run")
	socket.await(t, "READY=1")
	socket.awaitPart(t, "STATUS=applying: velum.yaml: dashboard is not started yet") // there is no kubelet
	assert.Nil(t, st(t, n).NextCheck)

	n.WriteFile(configFile, "interval: 12h\n")
	daemon.Signal(1)
	socket.awaitPart(t, "RELOADING=1")
	socket.await(t, "READY=1")
	s := st(t, n)
	require.NotNil(t, s.NextCheck)
	assert.WithinDuration(t, time.Now(), *s.NextCheck, 12*time.Hour+time.Minute)

	n.WriteFile(configFile, "interval: 12h\nintervall: 2h\n")
	daemon.Signal(1)
	socket.awaitPart(t, "RELOADING=1")
	socket.await(t, "READY=1")
	log := output(t, daemon.Stderr)
	assert.Contains(t, log, "configuration not taken")
	assert.Contains(t, log, `config.yaml:2: unknown key \"intervall\"`)
	n.WriteFile(configFile, "interval: 12h\n")
	assert.Equal(t, s.NextCheck, st(t, n).NextCheck, "the old one stays")

	check(t, n)
	socket.awaitPart(t, "STATUS=staged: waiting for approval: velum.yaml (revision)")
	daemon.Signal(15)
	socket.await(t, "STOPPING=1")
	assert.Equal(t, 0, daemon.Wait(ready).Code)
	assert.NoFileExists(t, n.Path("run/image-update-agent/agent.sock"))
	assert.NoFileExists(t, n.Path("run/image-update-agent/status.sock"))
}

// awaitPart reads messages until one has a line that begins so.
func (s notify) awaitPart(t *testing.T, part string) {
	t.Helper()
	require.NoError(t, s.conn.SetReadDeadline(time.Now().Add(ready)))
	buf := make([]byte, 64<<10)
	for {
		size, err := s.conn.Read(buf)
		require.NoError(t, err, "waiting for %s", part)
		for line := range strings.Lines(string(buf[:size])) {
			if strings.HasPrefix(line, part) {
				return
			}
		}
	}
}

// SIGTERM in the middle of a pull ends the daemon, not only after it, and
// leaves nothing that holds disk space.
func TestTerminateInAPull(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	before := look(t, n)
	asked := hangLayers(n)
	check := n.StartAgent("check")
	<-asked
	node.Eventually(t, "the pull shows", ready, func() error {
		if p := st(t, n).Progress; p == nil || p.Phase != "downloading" && p.Phase != "resolving" {
			return errors.New("no progress")
		}
		return nil
	})
	daemon.Signal(15)
	assert.Equal(t, 0, daemon.Wait(ready).Code)
	assert.Equal(t, 1, check.Wait(ready).Code)
	before.unchanged(t, n)
	n.Registry.Intercept(nil)
	s := cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// The interval is also a variable; without a daemon, `status` shows the last
// word and its age.
func TestStatusWithoutDaemon(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	r := n.Agent("status")
	assert.Equal(t, 1, r.Code)
	assert.Contains(t, r.Stderr, "no daemon answers")
	assert.Contains(t, r.Stderr, "hint: start the daemon")
	for _, verb := range []string{"check", "apply"} {
		r = n.Agent(verb)
		assert.Equal(t, 1, r.Code)
		assert.Contains(t, r.Stderr, "agent.sock: no daemon answers")
		assert.Contains(t, r.Stderr, "hint: start the daemon")
	}

	template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=12h")
	s := check(t, n)
	require.NotNil(t, s.NextCheck)
	assert.WithinDuration(t, time.Now(), *s.NextCheck, 12*time.Hour)
	daemon.Kill()
	for _, way := range []string{"run/image-update-agent", "nothing"} {
		r = n.Agent("status")
		assert.Equal(t, 0, r.Code, r.Stderr)
		assert.Contains(t, r.Stderr, "no daemon answers; this is the status of ")
		assert.Contains(t, r.Stderr, "s ago)")
		assert.Contains(t, r.Stdout, "velum.yaml")
		require.NoError(t, os.RemoveAll(n.Path(way)), "a boot empties /run")
	}
	last := parsed(t, n.Agent("status", "--output", "json"))
	s.Images[0].Down = nil // nobody has observed the node since the boot
	assert.Equal(t, s.Images, last.Images)
}
