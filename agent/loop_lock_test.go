// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A person ends a lock that is kept for a pod that failed.
func TestReleaseLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.ReleaseLock(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoLock)
		_, err = l.TryLock(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoLock)
	})
	synctest.Test(t, func(t *testing.T) {
		w, first, second := member(t)
		w.Policy.Auto, w.Policy.ApplyTimeout = false, time.Second
		l := start(t, w, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		w.Node.Crash(first.Digest, true)
		w.Node.Crash(second.Digest, true)
		w.Node.OnStop = func(string) error { // in the middle of the apply
			_, err := l.ReleaseLock(t.Context(), nil)
			assert.ErrorIs(t, err, release.ErrHeld)
			assert.Equal(t, []string{"me"}, w.Fleet.Holders())
			return nil
		}
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.NoError(t, err)
		require.True(t, l.Status().Lock.Kept, l.Status().Reason)
		w.Fleet.OnUnlock = func(string) error { return errors.New("away") }
		s, err := l.ReleaseLock(t.Context(), nil)
		require.ErrorContains(t, err, "away")
		assert.Equal(t, fleet.LockReleasing, s.Lock.State)
		w.Fleet.OnUnlock = nil
		s, err = l.ReleaseLock(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		assert.False(t, s.HasReason(status.KindLock))
		assert.Empty(t, w.Fleet.Holders())
	})
}

// Without the record the node does not know that it has the lock. What it does not know to be its own it does not give
// back: a lock under this id may be another machine's. A person does.
func TestLockOfALostRecordIsAPersonsToRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := member(t)
		w.Policy.Auto = false
		w.Fleet.Give("me") // it was given before the record was lost
		l := start(t, w, 0, 0)
		defer l.end()
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		assert.Equal(t, []string{"me"}, w.Fleet.Holders())
		_, err = l.TryLock(t.Context(), nil)
		require.ErrorIs(t, err, fleet.ErrRetained, "doctor says so")
		assert.Equal(t, []string{"me"}, w.Fleet.Holders())

		_, err = l.ReleaseLock(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, w.Fleet.Holders())
	})
}

// The loop asks again for the lock by itself, some minutes after it was given back elsewhere.
func TestLoopAsksAgainForTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, second := member(t)
		w.Fleet.Give("other")
		l := start(t, w, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		pass(5 * time.Minute)
		locks, unlocks := w.Fleet.Requests()
		assert.Greater(t, locks, 2)
		assert.Less(t, locks, 12)
		assert.Zero(t, unlocks)
		w.Fleet.Drop("other")
		pass(2 * time.Minute)
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}
