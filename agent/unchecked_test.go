// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A pod that is new on a node which has polled before waits for the first poll no
// longer than a new node does, and the others are not asked for again.
func TestLoopPollsForANewPodSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute)
		require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		slot := *l.Status().NextCheck
		l.Registry.Counts()
		l.Registry.Release(mariadb, "1.0.0", 1, "1.1")
		l.Node.PutTemplate("mariadb.yaml", podYAML("mariadb", "mariadb="+mariadb+":1.0.0-rev1"))
		pass(10 * time.Minute)
		s := l.Status()
		require.Equal(t, status.StateUnchecked, s.State, s.Reason)
		assert.Equal(t, "no registry was asked yet for mariadb.yaml", s.Reason)
		assert.Equal(t, policy.NextSlot(l.now(), 10*time.Minute, "machine"), *s.NextCheck)
		assert.Zero(t, l.Registry.Counts(), "observing the node asks nobody")
		pass(10 * time.Minute)
		s = l.Status()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.NotEmpty(t, image(s, "mariadb.yaml", "mariadb").Host)
		assert.Equal(t, slot, *s.NextCheck)
		counts := l.Registry.Counts()
		assert.Equal(t, 1, counts.Lists, "of mariadb alone")
		pass(slot.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
	})
}

// Where the clock was set back, the first poll is not as far away as it was set.
func TestLoopPollsANewNodeSoonAfterTheClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, time.Minute)
		defer l.end()
		l.offset.Store(-int64(1000 * time.Hour))
		pass(11 * time.Minute)
		assert.Equal(t, 1, l.Registry.Counts().Lists)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}

// A poll that the daemon's end has cut short was no check.
func TestPollInterruptedByShutdownIsNoCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.restart()
	ctx, stop := context.WithCancel(t.Context())
	w.Registry.OnAsk = func(string, string) { stop() }
	s, _ := w.agent.Cycle(ctx, source.PollAll)
	assert.Nil(t, s.LastCheck)
	assert.NotContains(t, w.Disk.JSON(), "lastCheck")
}
