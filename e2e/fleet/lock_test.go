// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A real node under the lock of a fleet, with a real lock server: another node has it, then this one; a pod that does not
// come up keeps it, and a person releases it.
func TestLockOnANode(t *testing.T) {
	t.Parallel()
	url := lockServer(t, story.StartEtcd(t).Store())
	n, daemon, port := story.Running(t, "settle: 0\napplyTimeout: 1m\napply:\n  lock: {url: \""+url+"\", group: masters, pods: all}\n")
	lock := func() (l fleet.LockStatus) {
		t.Helper()
		r := n.Agent("lock", "show", "--output", "json")
		require.Zero(t, r.Code, r.Stderr)
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &l))
		return l
	}
	command, program := story.SaltCommand(t, map[string]any{"image_update": map[string]any{"lock_wait": 0}}),
		story.Program(t, fmt.Sprintf("exec '%s' \"$@\" --root '%s'\n", n.AgentProgram(), n.Root))
	other := lockOf(t, url, "other")
	_, err := other.Lock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fleet.LockFree, lock().State)

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	story.Check(t, n)
	r := n.Agent("apply")
	assert.Equal(t, 4, r.Code, r.Stderr)
	assert.Regexp(t, `velum\.yaml +rebuild +held .*lock`, r.Stdout)
	assert.Contains(t, r.Stdout, "other")
	waits, _, _ := story.SaltRun(t, "/bin/sh", command, program)
	assert.True(t, waits.Result)
	assert.Regexp(t, `^waits for the lock of the fleet \(4\): .*holder other`, waits.Comment)
	story.Answers(t, port, "4.0.0-rev1-build1.1")
	require.NoError(t, other.Unlock(t.Context()))
	done, _, _ := story.SaltRun(t, "/bin/sh", command, program)
	assert.True(t, done.Result, done.Comment)
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	_, err = other.Lock(t.Context())
	require.NoError(t, err, "it was given back")
	require.NoError(t, other.Unlock(t.Context()))

	// Killed with the lock: the next start ends the apply, and gives it back.
	assert.Zero(t, daemon.Stop().Code)
	for i, at := range []string{"apply: lock before", "apply: lock after", "apply: stop after", "report: unlock before", "report: unlock after"} {
		want := fmt.Sprintf("4.0.0-rev1-build2.%d", i+1)
		story.Rel(n, "demo/velum", want)
		node.Eventually(t, at+": all containers run", story.Ready, func() error {
			if r := n.Agent("run", "--once"); r.Code != 0 {
				return fmt.Errorf("%d: %s", r.Code, r.Stdout)
			}
			return nil
		})
		killable := n.StartKillable([]string{"UPDATE_POLLING_INTERVAL=0", "IUA_KILL_AT=" + at}, "run")
		story.Check(t, n)
		n.Agent("apply")
		killable.Wait(story.Ready)
		after := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
		n.WaitAnswer(port, want)
		node.Eventually(t, at, story.Ready, func() error {
			if s := story.St(t, n); s.State != status.StateCurrent {
				return fmt.Errorf("%s: %s: %s", at, s.State, s.Reason)
			}
			return nil
		})
		assert.Equal(t, fleet.LockFree, lock().State)
		_, err = other.Lock(t.Context())
		require.NoError(t, err, at)
		require.NoError(t, other.Unlock(t.Context()))
		assert.Zero(t, after.Stop().Code)
	}
}
