// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// record is what stands on the disk.
func (w *world) record() record.Record {
	w.t.Helper()
	var r record.Record
	require.NoError(w.t, json.Unmarshal([]byte(w.Disk.JSON()), &r))
	return r
}

func denied(r release.Release) string { return r.Repository + "@" + r.Digest.String() }

// The whole pod restarts, but only its changed releases are denied.
func TestOnlyChangedImagesAreDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		bad := w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		r := w.record()
		require.Len(t, r.Denied, 1)
		assert.Contains(t, r.Denied, denied(bad))
	})
}

// edited is kubelet's directory, edited just before the agent writes.
type edited struct {
	node.PodFiles
	n, at *int
	edit  func()
}

func (e edited) SetAside(ctx context.Context, was node.PodFile) error {
	if *e.n++; *e.n == *e.at {
		e.edit()
	}
	return e.PodFiles.SetAside(ctx, was)
}

func TestEditDropsTheOverride(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.bad(2, "9.9")
		mine := podYAML("velum", "velum="+mariadb+":10.0-rev1")
		n, at := 0, 2
		w.agent.Files = edited{w.Node, &n, &at, func() { w.Node.PutPodManifest("velum.yaml", mine) }}
		out, _ := w.apply()
		assert.NotEqual(t, status.ResultApplied, out[0].Result)
		assert.Equal(t, string(mine), w.Node.PodManifest("velum.yaml"))
		assert.Empty(t, w.record().Overrides)
		w.observe()
		assert.Equal(t, string(mine), w.Node.PodManifest("velum.yaml"))
	})
}

// A failed rollback is tried once and reported.
func TestFailedRollbackIsTriedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Crash(first.Digest, true); return nil }
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "4.0.0-rev1-build1.1 does not come up either")
		assert.Equal(t, status.StateFailed, s.State)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
		o := w.record().Overrides["velum.yaml"]
		assert.False(t, o.Pending)
		for range 2 {
			began := time.Now()
			w.restart()
			s = w.observe()
			assert.Zero(t, time.Since(began), "it is not tried again and again")
			assert.Equal(t, status.StateFailed, s.State)
		}
		next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
		w.check()
		out, s = w.apply()
		assert.NotEqual(t, status.ResultNothing, out[0].Result)
		w.runs("velum.yaml", "velum", next.Digest)
		_ = s
	})
}

// After a failed apply and a good rollback only the denial is reported.
func TestFailureOfAnAdoptedReleaseEndsWithItsRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		bad := w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		r := w.record()
		assert.Empty(t, r.Failed)
		assert.Contains(t, r.Denied, denied(bad))
		assert.Equal(t, "velum.yaml", r.Denied[denied(bad)].PodManifest)
		assert.False(t, r.Denied[denied(bad)].ByHand)
	})
}

// A release that kubelet took all the same, and that came up, is not denied any more.
func TestProvedReleaseIsNotDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		old := w.Node.PodManifest("velum.yaml")
		bad := w.bad(1, "9.9")
		w.apply()
		w.Node.Crash(bad.Digest, false)
		w.Node.PutPodManifest("velum.yaml", []byte(old)) // an older /etc
		s := w.observe()
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		r := w.record()
		assert.Empty(t, r.Denied)
		assert.Empty(t, r.Overrides)
		assert.True(t, image(s, "velum.yaml", "velum").Adopted)
	})
}

// An interrupted proof of an adopted release denies nothing.
func TestInterruptedProofOfAnAdoptedReleaseDeniesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 30 * time.Second
		w.restart()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.Restart("velum.yaml", "velum")
		ctx, kill := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, kill)
		defer kill()
		_, err := w.agent.Cycle(ctx, source.PollNone)
		require.NoError(t, err)
		r := w.record()
		assert.Empty(t, r.Denied)
		assert.Empty(t, r.Failed)
		w.restart()
		s := w.observe()
		assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastGood.Digest)
	})
}

// What was lost is staged again and then named.
func TestLostRollbackTargetIsStagedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Lose(first.Digest); return nil }
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Node.Names(first.Digest), velum+"@"+first.Digest.String())
	})
}

// CRI lists a new name late: the pod manifest names it only then.
func TestRollbackWaitsUntilCRIListsTheDigest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Unlisted = 4; return nil }
		asked := -1
		w.Node.OnAside = func(string) error { asked = w.Node.Unlisted; return nil }
		w.apply()
		assert.Zero(t, asked)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// By hand: the approval ends, what is left is denied by hand, and nothing else is.
func TestRollbackByHandEndsTheApproval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.apply()
		w.Registry.Release(velum, "4.0.0", 2, "1.3")
		w.check()
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		w.Node.OnAside = func(string) error { kill(); return nil }
		_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		require.NoError(t, err)
		require.NotEmpty(t, w.record().Approved, "it goes on at the next start")
		w.Node.OnAside = nil
		w.restart()
		out, s, err := w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		r := w.record()
		assert.Empty(t, r.Approved)
		require.Len(t, r.Denied, 1, "db stays what it is")
		assert.True(t, r.Denied[denied(second)].ByHand)
		assert.NotEqual(t, status.StateFailed, s.State, "a person wanted it: "+s.Reason)
	})
}

// The registry is asked whether it is there: not at once, and not all the time.
func TestRescueAsksTheRegistryAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error {
			w.Node.OnStop = nil
			w.Node.SetKubelet(false)
			time.AfterFunc(3*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			w.Registry.Counts()
			return nil
		}
		var asked []time.Duration
		began := time.Now()
		w.Registry.OnAsk = func(string, string) { asked = append(asked, time.Since(began)) }
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, asked)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256", "it is there")
	})
}

// A registry that is away for a second, just when kubelet asks it: kubelet asks
// again after 10 to 15 s, and makes a new pod of a new pod manifest at once.
func TestRescueDoesNotWaitForKubelet(t *testing.T) {
	t.Parallel()
	for _, asked := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		t.Run(asked.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				w.Policy.Settle, w.Policy.Forgets = 0, apply.KubeletForgets
				w.restart()
				second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				var stopped time.Time
				w.Node.OnStop = func(string) error {
					w.Node.OnStop, stopped = nil, time.Now()
					w.Node.SetKubelet(false) // it is refused, and waits
					time.AfterFunc(asked, func() { w.Registry.Down(agenttest.ErrRefused) })
					time.AfterFunc(asked+time.Second, func() { w.Registry.Down(nil) })
					time.AfterFunc(10*time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
					return nil
				}
				w.Node.OnAside = func(string) error { w.Node.SetKubelet(true); w.Node.Sync(); return nil }
				out, _ := w.apply()
				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", second.Digest)
				assert.LessOrEqual(t, time.Since(stopped), asked+4*time.Second, "three after its return")
			})
		})
	}
}

// It is rescued once: a pod that does not start then is rolled back.
func TestRescueIsTriedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		asides := 0
		w.Node.OnAside = func(string) error { asides++; return nil }
		w.Node.OnStop = func(string) error {
			w.Registry.Down(agenttest.ErrRefused)
			w.Node.SetKubelet(false)
			return nil
		}
		out, _ := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		assert.Equal(t, 2, asides, "once for the rescue, once for the rollback")
	})
}

// rollbackPending is a pod whose apply has failed, and that waits to be brought back:
// the node has lost what ran before, and cannot fetch it.
func rollbackPending(t *testing.T) (w *world, first release.Release) {
	t.Helper()
	w, first = running(t)
	w.bad(1, "9.9")
	w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Lose(first.Digest); return nil }
	w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
	w.apply()
	require.True(t, w.record().Overrides["velum.yaml"].Pending)
	return w, first
}
