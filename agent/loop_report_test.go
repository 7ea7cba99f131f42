// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// watched collects the states that a client sees which waits for each change.
func watched(l *looped) (states func() []status.State, stop func()) {
	var seen []status.State
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			changed := l.Changed()
			if s := l.Status().State; len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
			select {
			case <-changed:
			case <-end:
				return
			}
		}
	}()
	stop = func() { close(end); <-ended }
	return func() []status.State { synctest.Wait(); return seen }, stop
}

// A watching client sees the states of another client's apply.
func TestLoopReportsEachChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.Node.Sync()
		states, stop := watched(l)
		defer stop()
		assert.Equal(t, []status.State{status.StateCurrent}, states())
		_, err = l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged}, states())
		l.Node.SetKubelet(false)
		go func() {
			pass(3 * time.Second)
			assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged, status.StateApplying}, states())
			l.Node.Sync()
		}()
		out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged, status.StateApplying, status.StateCurrent}, states())
	})
}

// Progress comes by the hundred and wakes only its listeners.
func TestLoopReportsProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		var phases []string
		changed := l.Changed()
		var activities []status.Activity
		stop := l.Listen(func(p status.Progress) {
			phases = append(phases, p.Phase)
			if isClosed(changed) {
				changed = l.Changed()
				activities = append(activities, l.Status().Activity)
			}
		})
		assert.Equal(t, status.ActivityNone, l.Status().Activity)
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Contains(t, phases, "done")
		assert.Equal(t, []status.Activity{status.ActivityChecking}, activities, "the activity changes, and nothing else")
		assert.Equal(t, status.ActivityNone, l.Status().Activity, "the work is done")
		assert.True(t, isClosed(changed), "the check itself is a change")
		stop()
		heard := len(phases)
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err = l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, phases, heard, "who has stopped hears nothing")
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
