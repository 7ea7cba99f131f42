// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// counted is an agent.Meter that records its calls.
type counted struct {
	mu       sync.Mutex
	turns    int
	failed   []string
	staged   []error
	restarts []apply.Measured
}

func (c *counted) lock() func() { c.mu.Lock(); return c.mu.Unlock }

func (c *counted) CycleDone() {
	defer c.lock()()
	c.turns++
}

func (c *counted) Failed(host string, cause release.Cause) {
	defer c.lock()()
	c.failed = append(c.failed, host+" "+string(cause))
}

func (c *counted) Staged(err error) {
	defer c.lock()()
	c.staged = append(c.staged, err)
}

func (c *counted) Restarted(r apply.Measured) {
	defer c.lock()()
	c.restarts = append(c.restarts, r)
}

// metered is a node with velum staged, and a meter.
func metered(t *testing.T, edit func(*world)) (*world, *counted) {
	t.Helper()
	w, c := newWorld(t), &counted{}
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	w.Policy.Settle, w.Policy.Forgets = 5*time.Second, apply.KubeletForgets
	if edit != nil {
		edit(w)
	}
	w.restart()
	w.agent.Meter = c
	w.check()
	return w, c
}

func TestAppliesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, c := metered(t, nil)
		require.Equal(t, []error{nil}, c.staged)
		w.publish(2, "2.1")
		w.apply()
		require.Len(t, c.restarts, 1)
		r := c.restarts[0]
		assert.Equal(t, status.ResultApplied, r.Result)
		assert.False(t, r.Back)
		assert.GreaterOrEqual(t, r.Up, apply.KubeletForgets)
		assert.GreaterOrEqual(t, r.Took, r.Up+w.Policy.Settle)
		assert.Less(t, r.Up, w.Policy.Settle, "the time in which it is verified healthy is no time in which it is down")

		w.publish(3, "3.1")
		w.Registry.Down(agenttest.ErrRefused)
		w.apply()
		require.Len(t, c.restarts, 2)
		assert.Equal(t, status.ResultHeld, c.restarts[1].Result)
		assert.Zero(t, c.restarts[1].Up, "nothing was restarted")
	})
}

func TestRollbacksAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, c := metered(t, nil)
		w.bad(2, "2.1")
		w.apply()
		require.Len(t, c.restarts, 2)
		assert.Equal(t, status.ResultFailed, c.restarts[0].Result)
		assert.GreaterOrEqual(t, c.restarts[0].Took, w.Policy.ApplyTimeout)
		assert.Zero(t, c.restarts[0].Up)
		back := c.restarts[1]
		assert.True(t, back.Back)
		assert.False(t, back.ByHand)
		assert.Equal(t, status.ResultRolledBack, back.Result)
		assert.GreaterOrEqual(t, back.Up, apply.KubeletForgets)
		assert.Less(t, back.Took, w.Policy.ApplyTimeout)

		w.publish(3, "3.1")
		w.apply()
		w.rollback()
		require.Len(t, c.restarts, 4)
		assert.True(t, c.restarts[3].Back)
		assert.True(t, c.restarts[3].ByHand)
	})
}

func TestCyclesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &counted{}
		w := newWorld(t)
		l := &looped{world: w, manager: &manager{}, ended: make(chan error, 1)}
		first := w.Agent()
		first.Now, first.Meter = l.now, c
		l.Loop = agent.NewLoop(first, l.manager, time.Hour, 0, "machine")
		ctx, stop := context.WithCancel(t.Context())
		l.stop = stop
		go func() { l.ended <- l.Run(ctx) }()
		l.checks()
		synctest.Wait()
		assert.Equal(t, 2, c.turns, "the look at the start, and the check")
		next := w.Agent()
		next.Now, next.Meter = l.now, c
		require.NoError(t, l.Reconfigure(t.Context(), next, time.Hour))
		synctest.Wait()
		assert.Equal(t, 3, c.turns)
		l.end()
	})
}
