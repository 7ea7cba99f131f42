// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// member is a node with an etcd that mode auto may apply under the lock of a fleet. It returns what runs, and the
// update.
func member(t *testing.T) (w *world, first, second release.Release) {
	t.Helper()
	w = newWorld(t)
	w.Fleet = &agenttest.Fleet{}
	w.Policy.Auto = true
	w.Policy.Lock = fleet.Lock{Pods: fleet.LockControlPlane, Server: "https://lock", Group: "masters", ID: "me"}
	w.Policy.Manage = map[string]bool{"etcd.yaml": true}
	first = w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.13-rev1"))
	s := w.check()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Equal(t, fleet.LockFree, s.Lock.State)
	second = w.Registry.Release(etcd, "3.4.13", 1, "1.2")
	return w, first, second
}

// requests asserts how often the lock was asked for, and given back.
func (w *world) requests(locks, unlocks int) {
	w.t.Helper()
	l, u := w.Fleet.Requests()
	assert.Equal(w.t, [2]int{locks, unlocks}, [2]int{l, u}, "requests to lock and to unlock")
}

func TestAutoAppliesTheControlPlaneUnderTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.requests(0, 0)
		stopped := false
		w.Node.OnStop = func(string) error {
			stopped = true
			assert.Equal(t, []string{"me"}, w.Fleet.Holders(), "it has the lock when the container is stopped")
			assert.Contains(t, w.Disk.JSON(), `"lock":{"state":"held"`, "and the record says so")
			return nil
		}
		w.Fleet.OnLock = func(string) (bool, error) {
			assert.False(t, stopped)
			assert.Contains(t, w.Disk.JSON(), `"lock":{"state":"waiting"`, "the record says so before the request")
			return false, nil
		}
		s := w.check()
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.True(t, stopped)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, &fleet.LockStatus{
			Server: "https://lock", Group: "masters", ID: "me", Pods: "control-plane", State: fleet.LockFree,
			PodManifests: []string{}, Holders: []fleet.LockHolder{}, WorkedAt: w.Clock.Now().UTC(),
		}, s.Lock)
		assert.Empty(t, w.Fleet.Holders())
		w.requests(1, 1)
		assert.NotContains(t, w.Disk.JSON(), `"lock"`)
		w.idle()
		for range 3 {
			w.Clock.Add(time.Hour)
			w.check()
		}
		w.requests(1, 1) // none between two applies
	})
}

func TestOtherPodsNeedNoLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, pods := range []string{fleet.LockControlPlane, fleet.LockAll} {
			w, _ := running(t)
			w.Fleet, w.Policy.Auto = &agenttest.Fleet{}, true
			w.Policy.Lock = fleet.Lock{Pods: pods, Server: "https://lock", Group: "g", ID: "me"}
			w.restart()
			w.Fleet.Give("other")
			second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
			s := w.check()
			if pods == fleet.LockControlPlane {
				w.runs("velum.yaml", "velum", second.Digest)
				w.requests(0, 0)
				continue
			}
			assert.Equal(t, status.StateHeld, s.State, s.Reason)
			w.requests(1, 0)
			w.Fleet.Drop("other")
			w.Clock.Add(2 * time.Minute)
			w.observe()
			w.runs("velum.yaml", "velum", second.Digest)
		}
	})
}

// Where another node has the lock, or the server is away, these pods wait, and status says for whom.
func TestLockIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		other := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
		w.Fleet.Give("other")
		s := w.check()
		began := w.Clock.Now()
		w.runs("etcd.yaml", "etcd", first.Digest)
		w.runs("velum.yaml", "velum", other.Digest)
		assert.Equal(t, status.StateHeld, s.State)
		assert.Equal(t, "etcd.yaml: lock: lock server fake: 409: all slots are taken (holder other)", s.Reason)
		assert.Equal(t, status.HoldLock, podOf(s, "etcd.yaml").Holds[0].Name)
		assert.Equal(t, fleet.LockWaiting, s.Lock.State)
		assert.Equal(t, began, s.Lock.Since)
		assert.Equal(t, []fleet.LockHolder{{ID: "other"}}, s.Lock.Holders)
		assert.Equal(t, "locked", s.Lock.Kind)
		assert.WithinRange(t, s.Lock.RetryAt, began.Add(30*time.Second), began.Add(90*time.Second))
		w.requests(1, 0)
		w.observe()
		w.requests(1, 0) // not before RetryAt

		w.Fleet.OnLock = func(string) (bool, error) { return false, errors.New("connection refused") }
		w.Clock.Add(2 * time.Minute)
		s = w.observe()
		assert.Equal(t, "etcd.yaml: lock: lock server fake: connection refused", s.Reason)
		assert.Equal(t, began, s.Lock.Since, "it still waits")
		assert.Empty(t, s.Lock.Holders)
		w.requests(2, 0)

		w.Fleet.OnLock = nil
		w.Fleet.Drop("other")
		w.restart()
		w.Clock.Add(3 * time.Minute)
		s = w.observe()
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.requests(3, 1)
	})
}

// A lock that is not needed any more is given back, although no answer ever gave it.
func TestLockThatIsNotNeededIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := member(t)
		w.Fleet.OnLock = func(string) (bool, error) { return true, errors.New("the answer was lost") }
		s := w.check()
		assert.Equal(t, fleet.LockWaiting, s.Lock.State)
		assert.Equal(t, []string{"me"}, w.Fleet.Holders())
		w.Policy.Auto = false
		w.restart()
		w.Fleet.OnUnlock = func(string) error { return errors.New("away") }
		s = w.observe()
		assert.Equal(t, fleet.LockReleasing, s.Lock.State)
		assert.Equal(t, "lock server fake: away", s.Lock.Error)
		w.observe()
		w.requests(1, 1) // not before RetryAt
		w.Fleet.OnUnlock = nil
		w.Clock.Add(2 * time.Minute)
		s = w.observe()
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		assert.Empty(t, w.Fleet.Holders())
		w.requests(1, 2)
	})
}

// A server that gives the lock and does not take it back stops the fleet: the node that has it is failed and says why,
// until the server takes it.
func TestServerThatDoesNotTakeTheLockBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.Fleet.OnUnlock = func(string) error { return errors.New("500: error uncordoning node") }
		s := w.check()
		began := w.Clock.Now().UTC()
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, "the lock of the fleet is not given back, so that no other node follows: "+
			"lock server fake: 500: error uncordoning node", s.Reason)
		require.Len(t, s.Reasons, 1)
		assert.Equal(t, status.KindUnlock, s.Reasons[0].Kind)
		assert.Equal(t, "fake", s.Reasons[0].Host)
		assert.Equal(t, began, s.Reasons[0].Since)
		assert.Len(t, s.Failures, 1)
		w.restart()
		for range 3 {
			w.Clock.Add(time.Minute)
			s = w.observe()
			assert.Equal(t, status.StateFailed, s.State, "also after a restart, and while it waits")
		}
		w.Fleet.OnUnlock = nil
		w.Clock.Add(time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, w.Fleet.Holders())
		assert.Equal(t, w.Clock.Now().UTC(), s.Lock.WorkedAt)
		w.Policy.Lock.Group = "others"
		w.restart()
		assert.True(t, w.observe().Lock.WorkedAt.IsZero(), "that was another lock")
	})
}

// A pod that was rolled back and proved does not stop the fleet; one that does not come up either does.
func TestLockAfterAFailure(t *testing.T) {
	for name, fatal := range map[string]bool{"rolled back": false, "does not come up either": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first, second := member(t)
				w.Policy.ApplyTimeout = time.Second
				w.restart()
				w.Node.Crash(second.Digest, true)
				if fatal {
					w.Node.OnStop = func(string) error { w.Node.Crash(first.Digest, true); return nil }
				}
				s := w.check()
				assert.Equal(t, status.StateFailed, s.State, s.Reason)
				if !fatal {
					w.runs("etcd.yaml", "etcd", first.Digest)
					assert.Empty(t, w.Fleet.Holders())
					assert.Equal(t, fleet.LockFree, s.Lock.State)
					w.requests(1, 1)
					return
				}
				assert.Equal(t, []string{"me"}, w.Fleet.Holders())
				assert.True(t, s.Lock.Kept)
				assert.True(t, s.HasReason(status.KindLock), s.Reason)
				w.restart()
				w.Clock.Add(24 * time.Hour)
				s = w.observe()
				assert.Equal(t, fleet.LockHeld, s.Lock.State, "there is no time-out")
				w.Node.Crash(first.Digest, false)
				w.Node.Sync()
				for range 3 {
					w.Clock.Add(time.Hour)
					s = w.observe()
				}
				assert.Empty(t, w.Fleet.Holders(), "it came up, and is proved: %s", s.Reason)
			})
		})
	}
}

// A person's apply needs the lock, too, and says who has it.
func TestPersonNeedsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		w.Policy.Auto = false
		w.restart()
		w.check()
		w.Fleet.Give("other")
		out, s := w.apply()
		assert.Equal(t, status.Outcome{
			PodManifest: "etcd.yaml", Change: "rebuild", Result: status.ResultHeld, Hold: status.HoldLock,
			ErrorKind: status.ErrorHeld, Edits: out[0].Edits,
			Reason: "apply: held: lock: lock server fake: 409: all slots are taken (holder other)",
		}, out[0])
		assert.Equal(t, status.StateHeld, s.State)
		w.runs("etcd.yaml", "etcd", first.Digest)
		s = w.observe()
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		w.Fleet.Drop("other")
		out, _ = w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("etcd.yaml", "etcd", second.Digest)

		w.Fleet.Give("other")
		back, _, err := w.agent.Rollback(t.Context(), plan.Named("etcd"))
		require.NoError(t, err)
		assert.Equal(t, status.HoldLock, back[0].Hold, "a rollback of what runs well needs it: %s", back[0].Reason)
		w.runs("etcd.yaml", "etcd", second.Digest)
		w.Fleet.Drop("other")
		w.Clock.Add(time.Hour)
		w.observe()
		w.runs("etcd.yaml", "etcd", first.Digest)
		assert.Empty(t, w.Fleet.Holders())
	})
}

// The status of a running apply has the lock, not only that of its end.
func TestLockIsShownDuringTheApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := member(t)
		l := start(t, w, 0, 0)
		defer l.end()
		w.Node.OnStop = func(string) error {
			assert.Equal(t, fleet.LockHeld, l.Status().Lock.State)
			assert.Equal(t, []string{"etcd.yaml"}, l.Status().Lock.PodManifests)
			return nil
		}
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, fleet.LockFree, s.Lock.State)
	})
}

// Nothing is asked before the rest of the apply is ready.
func TestLockIsTakenAfterThePreflight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := member(t)
		w.Policy.Auto = false
		w.restart()
		w.check()
		w.Registry.Down(agenttest.ErrRefused)
		w.apply()
		w.runs("etcd.yaml", "etcd", first.Digest)
		w.requests(0, 0)
	})
}

func TestLockServerThatSaysYesToTwo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.Fleet.Slots = 2
		w.Fleet.Give("other")
		broken := &twice{w.Fleet}
		w.agent = w.Agent()
		w.agent.FleetLock = broken
		w.Node.Crash(second.Digest, true)
		w.Node.OnStop = func(string) error {
			assert.Contains(t, w.Disk.JSON(), `"others":[{"id":"other"}]`)
			return nil
		}
		w.check()
		assert.Equal(t, 2, w.Fleet.Most())
	})
}

// twice is a lock server with one slot that two nodes have.
type twice struct{ *agenttest.Fleet }

func (b *twice) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	answer, err := b.Node("me").Lock(ctx)
	answer.Slots = 1
	return answer, err
}

func (b *twice) Unlock(ctx context.Context) error { return b.Node("me").Unlock(ctx) }

// A lock of a server that is configured no more is forgotten, and not given back to another one.
func TestLockOfAnotherServerIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := member(t)
		w.Fleet.Give("other")
		s := w.check()
		require.Equal(t, fleet.LockWaiting, s.Lock.State)
		w.Policy.Lock.Group, w.Policy.Auto = "others", false
		w.restart()
		s = w.observe()
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		w.requests(1, 0)
		w.Fleet, w.Policy.Lock = nil, fleet.Lock{}
		w.restart()
		s = w.cycle(source.PollNone)
		assert.Nil(t, s.Lock)
	})
}
