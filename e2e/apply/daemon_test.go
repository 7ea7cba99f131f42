// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// The daemon reports readiness, status and stop to the service manager; SIGHUP loads a valid configuration and rejects
// an invalid one.
func TestDaemonAndServiceManager(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	socket := story.NotifySocket(t, n)
	id := "a"
	for time.Until(policy.NextSlot(time.Now(), 12*time.Hour, id)) < 6*time.Hour { // no poll comes in between
		id += "a"
	}
	n.WriteFile("etc/machine-id", id)
	n.WriteFile(story.ConfigFile, "interval: 0\n")
	daemon := n.StartAgentWith([]string{"NOTIFY_SOCKET=" + socket.Path}, "run")
	socket.Await(t, "READY=1")
	socket.AwaitPart(t, "STATUS=applying: velum.yaml: dashboard has not started yet") // without a kubelet
	assert.Nil(t, story.St(t, n).NextCheck)

	n.WriteFile(story.ConfigFile, "interval: 12h\n")
	daemon.Signal(1)
	socket.AwaitPart(t, "RELOADING=1")
	socket.Await(t, "READY=1")
	s := story.St(t, n)
	require.NotNil(t, s.NextCheck)
	assert.WithinDuration(t, time.Now(), *s.NextCheck, 12*time.Hour+time.Minute)

	n.WriteFile(story.ConfigFile, "interval: 12h\nintervall: 2h\n")
	daemon.Signal(1)
	socket.AwaitPart(t, "RELOADING=1")
	socket.Await(t, "READY=1")
	log := story.Output(t, daemon.Stderr)
	assert.Contains(t, log, "cannot reload the configuration")
	assert.Contains(t, log, `config.yaml:2: unknown key \"intervall\"`)
	n.WriteFile(story.ConfigFile, "interval: 12h\n")
	assert.Equal(t, s.NextCheck, story.St(t, n).NextCheck, "the old one stays")

	story.Check(t, n)
	socket.AwaitPart(t, "STATUS=staged: waiting for approval: velum.yaml (revision)")
	daemon.Signal(15)
	socket.Await(t, "STOPPING=1")
	assert.Equal(t, 0, daemon.Wait(story.Ready).Code)
	assert.NoFileExists(t, n.Path("run/image-update-agent/agent.sock"))
	assert.NoFileExists(t, n.Path("run/image-update-agent/status.sock"))
}

// SIGTERM during a pull ends the daemon at once and leaves nothing that uses disk space.
func TestTerminateInAPull(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	before := story.Look(t, n)
	asked := hangLayers(n)
	check := n.StartAgent("check")
	<-asked
	node.Eventually(t, "the pull shows", story.Ready, func() error {
		if p := story.St(t, n).Progress; p == nil || p.Phase != "downloading" && p.Phase != "resolving" {
			return errors.New("no progress")
		}
		return nil
	})
	daemon.Signal(15)
	assert.Equal(t, 0, daemon.Wait(story.Ready).Code)
	assert.Equal(t, 1, check.Wait(story.Ready).Code)
	before.Unchanged(t, n)
	n.Registry.Intercept(nil)
	s := story.Cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// The interval can also be set by a variable; without a daemon, `status` shows the last status and its age.
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

	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=12h")
	s := story.Check(t, n)
	require.NotNil(t, s.NextCheck)
	assert.WithinDuration(t, time.Now(), *s.NextCheck, 12*time.Hour)
	daemon.Kill()
	for _, way := range []string{"run/image-update-agent", "nothing"} {
		r = n.Agent("status")
		assert.Equal(t, 0, r.Code, r.Stderr)
		assert.Contains(t, r.Stderr, "no daemon answers; this is the status of ")
		assert.Contains(t, r.Stderr, " ago)")
		assert.Contains(t, r.Stdout, "velum.yaml")
		require.NoError(t, os.RemoveAll(n.Path(way)), "a boot empties /run")
	}
	last := story.Parsed(t, n.Agent("status", "--output", "json"))
	s.Images[0].Down = nil // the node was not observed since the boot
	assert.Equal(t, s.Images, last.Images)
}
