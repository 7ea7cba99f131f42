// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// member returns a node with an etcd that mode auto may apply under the fleet lock, with the running release and the
// update.
func member(t *testing.T) (w *world, first, second release.Release) {
	t.Helper()
	w = newWorld(t)
	w.Fleet = &agenttest.Fleet{}
	w.Policy.Auto = true
	w.Policy.Lock = fleet.Lock{Pods: fleet.LockControlPlane, Target: fleet.Target{Server: "https://lock", Group: "masters"}, ID: "me"}
	w.Policy.Manage = map[string]bool{"etcd.yaml": true}
	first = w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.13-rev1"))
	s := w.check()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Equal(t, fleet.LockFree, s.Lock.State)
	second = w.Registry.Release(etcd, "3.4.13", 1, "1.2")
	return w, first, second
}

// requests asserts how often the lock was requested and released.
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
			w.Policy.Lock = fleet.Lock{Pods: pods, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
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

// If another node has the lock, or the server is unreachable, these pods wait, and the status names the holder.
func TestPodsWaitForTheLock(t *testing.T) {
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

// A lock that is no longer needed is released, although the server never confirmed that it granted it.
func TestUnneededLockIsReleased(t *testing.T) {
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

// A server that grants the lock and does not accept its release stops the fleet: the state of the node that holds it is
// failed, with the reason, until the server accepts.
func TestServerThatRejectsTheUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.Fleet.OnUnlock = func(string) error { return errors.New("500: error uncordoning node") }
		s := w.check()
		began := w.Clock.Now().UTC()
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, "the fleet lock cannot be released, so no other node can continue: "+
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

// A pod that was rolled back to a healthy state does not stop the fleet; a pod whose rollback fails does.
func TestLockAfterAFailure(t *testing.T) {
	for name, fatal := range map[string]bool{"rolled back": false, "does not become healthy either": true} {
		run(t, name, func(t *testing.T) {
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
			assert.Empty(t, w.Fleet.Holders(), "it came up, and is verified healthy: %s", s.Reason)
		})
	}
}

// A person's apply also needs the lock, and names its holder.
func TestPersonNeedsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		w.Policy.Auto = false
		w.restart()
		w.check()
		w.Fleet.Give("other")
		refusedAt := w.Clock.Now().UTC()
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
		assert.Equal(t, &fleet.LockStatus{
			Server: "https://lock", Group: "masters", ID: "me", Pods: "control-plane", State: fleet.LockRefused,
			Since: refusedAt, PodManifests: []string{"etcd.yaml"}, Kind: "locked", Holders: []fleet.LockHolder{{ID: "other"}},
			Error: "lock server fake: 409: all slots are taken (holder other)",
		}, s.Lock, "the agent does not ask again")
		w.requests(1, 1)
		w.Fleet.Drop("other")
		out, _ = w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("etcd.yaml", "etcd", second.Digest)

		w.Fleet.Give("other")
		back, _ := w.rollback("etcd")
		assert.Equal(t, status.HoldLock, back[0].Hold, "a rollback of what runs well needs it: %s", back[0].Reason)
		w.Fleet.Drop("other")
		w.Clock.Add(time.Hour)
		s = w.observe()
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Empty(t, w.record().Denied, "the request is over")
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		back, _ = w.rollback("etcd")
		assert.Equal(t, status.ResultRolledBack, back[0].Result, back[0].Reason)
		w.runs("etcd.yaml", "etcd", first.Digest)
		assert.Empty(t, w.Fleet.Holders())
	})
}

// A person's apply that could not reach the lock server took nothing, so there is nothing to release.
func TestUnreachableLockIsNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		w.Policy.Auto = false
		w.restart()
		w.check()
		w.Fleet.OnLock = func(string) (bool, error) {
			return false, &fleet.LockError{Server: "fake", Err: errors.New("connection refused"), Unsent: true}
		}
		w.Fleet.OnUnlock = func(string) error { return errors.New("connection refused") }
		out, _ := w.apply()
		assert.Equal(t, status.HoldLock, out[0].Hold, out[0].Reason)
		s := w.observe()
		assert.Equal(t, fleet.LockRefused, s.Lock.State)
		assert.Equal(t, "lock server fake: connection refused", s.Lock.Error)
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		w.runs("etcd.yaml", "etcd", first.Digest)
		w.requests(1, 0)

		w.Fleet.OnLock, w.Fleet.OnUnlock = nil, nil
		out, _ = w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("etcd.yaml", "etcd", second.Digest)
		assert.Empty(t, w.Fleet.Holders())
		w.requests(2, 1)
	})
}

// A refusal is forgotten with the update that needed the lock, and with the lock's configuration.
func TestRefusalOfTheLockEnds(t *testing.T) {
	for title, end := range map[string]func(w *world, first release.Release){
		"the update is gone": func(w *world, first release.Release) {
			w.Registry.Tag(etcd, "3.4.13-rev1", first.Digest)
			w.check()
		},
		"another lock is configured": func(w *world, _ release.Release) { w.Policy.Lock.Group = "others"; w.restart() },
	} {
		run(t, title, func(t *testing.T) {
			w, first, _ := member(t)
			w.Policy.Auto = false
			w.restart()
			w.check()
			w.Fleet.Give("other")
			w.apply()
			require.Equal(t, fleet.LockRefused, w.observe().Lock.State)
			end(w, first)
			w.observe()
			assert.Equal(t, fleet.LockFree, w.observe().Lock.State)
			w.requests(1, 1)
		})
	}
}

// The status shows the lock during an apply, not only after it.
func TestLockIsShownDuringTheApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := member(t)
		l := start(t, w, 0, 0)
		w.Node.OnStop = func(string) error {
			assert.Equal(t, fleet.LockHeld, l.Status().Lock.State)
			assert.Equal(t, []string{"etcd.yaml"}, l.Status().Lock.PodManifests)
			return nil
		}
		s := l.checks()
		assert.Equal(t, fleet.LockFree, s.Lock.State)
	})
}

// The lock is requested only after everything else is ready.
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

func TestLockServerThatGrantsTheSlotTwice(t *testing.T) {
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

// twice is a lock server that grants its only slot to two nodes.
type twice struct{ *agenttest.Fleet }

func (b *twice) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	answer, err := b.Node("me").Lock(ctx)
	answer.Slots = 1
	return answer, err
}

func (b *twice) Unlock(ctx context.Context) error { return b.Node("me").Unlock(ctx) }

// A lock of a server that is no longer configured is forgotten, and not released at another server.
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

// A person releases a lock that a failed pod keeps.
func TestReleaseLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		_, err := l.ReleaseLock(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoLock)
		_, err = l.TryLock(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoLock)
	})
	synctest.Test(t, func(t *testing.T) {
		w, first, second := member(t)
		w.Policy.Auto, w.Policy.ApplyTimeout = false, time.Second
		l := start(t, w, 0, 0)
		l.checks()
		w.Node.Crash(first.Digest, true)
		w.Node.Crash(second.Digest, true)
		w.Node.OnStop = func(string) error { // during the apply
			_, err := l.ReleaseLock(t.Context(), nil)
			assert.ErrorIs(t, err, release.ErrHeld)
			assert.Equal(t, []string{"me"}, w.Fleet.Holders())
			return nil
		}
		_, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
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

// Without the record the node does not know that it holds the lock, and does not release it: the holder with this id
// may be another machine. A person releases it.
func TestLockOfALostRecordIsReleasedByAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := member(t)
		w.Policy.Auto = false
		w.Fleet.Give("me") // granted before the record was lost
		l := start(t, w, 0, 0)
		s := l.checks()
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		assert.Equal(t, []string{"me"}, w.Fleet.Holders())
		_, err := l.TryLock(t.Context(), nil)
		require.ErrorIs(t, err, fleet.ErrRetained, "doctor says so")
		assert.Equal(t, []string{"me"}, w.Fleet.Holders())

		_, err = l.ReleaseLock(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, w.Fleet.Holders())
	})
}

// The loop requests the lock again a few minutes after another node released it.
func TestLoopRetriesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.Fleet.Give("other")
		l := start(t, w, 0, 0)
		l.checks()
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

// members is a control plane set by the test.
type members struct {
	seen  func(asked int) fleet.Observation
	asked int
	files []node.PodFile
}

func (m *members) Observe(_ context.Context, files []node.PodFile) fleet.Observation {
	m.asked++
	m.files = files
	return m.seen(m.asked)
}

var (
	allHealthy = fleet.Observation{Members: []fleet.Part{{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Healthy: true}}}
	oneDown    = fleet.Observation{Members: []fleet.Part{{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Seen: "refused"}}}
)

// A member that is already down holds the others, before the lock is requested.
func TestMemberThatIsDownHoldsTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		m := &members{seen: func(int) fleet.Observation { return oneDown }}
		w.restart()
		w.agent.Quorum = m
		s := w.check()
		w.runs("etcd.yaml", "etcd", first.Digest)
		w.requests(0, 0)
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "etcd.yaml: apply: held: quorum: etcd member b: refused")
		assert.Equal(t, status.HoldQuorum, s.Reasons[0].Hold)
		require.Len(t, m.files, 1)
		assert.Equal(t, "etcd.yaml", m.files[0].Name)
		out, _ := w.apply("etcd")
		assert.Equal(t, status.HoldQuorum, out[0].Hold)
		m.seen = func(int) fleet.Observation { return allHealthy }
		w.Clock.Add(10 * time.Minute)
		w.observe()
		w.runs("etcd.yaml", "etcd", second.Digest)
		w.requests(1, 1)
	})
}

// Another node may have had the lock between the first check of the members and the grant.
func TestMembersAreCheckedAgainUnderTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := member(t)
		m := &members{}
		m.seen = func(asked int) fleet.Observation {
			if asked == 1 {
				assert.Empty(t, w.Fleet.Holders())
				return allHealthy
			}
			return oneDown
		}
		w.restart()
		w.agent.Quorum = m
		s := w.check()
		w.runs("etcd.yaml", "etcd", first.Digest)
		assert.Empty(t, w.Fleet.Holders(), "the lock is given back")
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		w.requests(1, 1)
	})
}

func TestOtherPodsAreNotMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.restart()
		w.agent.Quorum = &members{seen: func(int) fleet.Observation { t.Error("asked"); return oneDown }}
		w.publish(1, "1.2")
		w.applies()
	})
}
