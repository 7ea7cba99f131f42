// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// isPinned asserts that the pod manifest names a digest, and asks no registry.
func (w *world) isPinned(long string, d digest.Digest) {
	w.t.Helper()
	text := w.Node.PodManifest("velum.yaml")
	assert.Contains(w.t, text, "image: "+velum+":"+long+"@"+d.String()+"\n")
	assert.Contains(w.t, text, "imagePullPolicy: IfNotPresent\n")
	assert.NotContains(w.t, text, "Always")
}

// bad publishes a release that crashes, and finds it.
func (w *world) bad(rev int, build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(velum, "4.0.0", rev, build)
	w.Node.Crash(r.Digest, true)
	w.check()
	return r
}

// rolledBackOnce is a pod of which an update did not come up, and what it runs again.
func rolledBackOnce(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.bad(1, "9.9")
	w.apply()
	w.runs("velum.yaml", "velum", first.Digest)
	return w, first
}

func TestFailedApplyIsRolledBack(t *testing.T) {
	for kind, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		for _, from := range []string{"template", "managed"} {
			t.Run(kind+" of a "+from, func(t *testing.T) {
				bubble(t, func(t *testing.T) { rolledBack(t, rev, from) })
			})
		}
	}
}

func rolledBack(t *testing.T, rev int, from string) {
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	if from == "template" {
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	} else {
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
	}
	w.check()
	w.bad(rev, "9.9")

	out, s := w.apply()

	assert.Equal(t, status.ResultFailed, out[0].Result)
	assert.Contains(t, out[0].Reason, "exit code 1")
	assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev1-build1.1")
	w.runs("velum.yaml", "velum", first.Digest)
	w.isPinned("4.0.0-rev1-build1.1", first.Digest)
	assert.Equal(t, status.StateFailed, s.State)
	for range 2 {
		i := image(s, "velum.yaml", "velum")
		assert.Nil(t, i.Offered, "it is not offered again")
		require.NotEmpty(t, i.Refused)
		assert.Equal(t, policy.RuleFailed, i.Refused[0].Rule)
		assert.Equal(t, first.Digest, i.LastGood.Digest)
		assert.Contains(t, w.Grain.Last().Reason, "rolled back")
		assert.Equal(t, "failed", w.Grain.Last().State)
		assert.Empty(t, w.Grain.Last().Updates)
		w.observe()
		w.idle()
		w.restart()
		s = w.check()
		assert.Equal(t, status.StateFailed, s.State, "as long as the release is denied: "+s.Reason)
	}
	w.Node.Restart("velum.yaml", "velum") // the registry still has the bad one
	w.Node.Collect()
	w.Node.Restart("velum.yaml", "velum")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.True(t, w.Node.Pinned(velum, first.Digest))

	// A newer release ends it all.
	next := w.Registry.Release(velum, "4.0.0", rev, "9.10")
	s = w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	for _, d := range w.record().Denied {
		assert.True(t, d.Past, "it stays refused, and is no trouble any more")
	}
	out, s = w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", next.Digest)
	assert.Contains(t, w.Node.PodManifest("velum.yaml"), "imagePullPolicy: Always")
	assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	assert.NotContains(t, w.Disk.JSON(), `"overrides"`)
	w.idle()
}

func TestPersonMayRetryADeniedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		out, _ := w.apply()
		require.Equal(t, status.ResultFailed, out[0].Result)
		out, _ = w.apply()
		assert.Equal(t, status.ResultNothing, out[0].Result, "not without the word")
		w.runs("velum.yaml", "velum", first.Digest)
		w.Node.Crash(bad.Digest, false)

		out, s := w.retry()

		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
		w.idle()
	})
}

func TestAdoptedReleaseThatDoesNotComeUpIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum") // kubelet takes it by itself

		s := w.observe()

		assert.Equal(t, status.StateFailed, s.State, s.Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
		w.idle()
	})
}

func TestAdoptedReleaseIsGoodWhenItIsProved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Settle = 30 * time.Second
		w.restart()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.Restart("velum.yaml", "velum")
		began := time.Now()
		s := w.observe()
		assert.Equal(t, 30*time.Second, time.Since(began))
		i := image(s, "velum.yaml", "velum")
		assert.True(t, i.Adopted)
		assert.Equal(t, second.Digest, i.LastGood.Digest)
		assert.True(t, w.Node.Pinned(velum, first.Digest))
		w.idle()
	})
}

// A foreign pod is not written. Its failure is reported once, and it is proved again when it has
// run for a while.
func TestAdoptedReleaseOfAForeignPodIsOnlyReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		was := rendered("velum", "velum="+velum+":4.0.0-rev1")
		w.Node.PutPodManifest("velum.yaml", was)
		w.check()
		bad := w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		s := w.observe()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "it stays as it is: velum.yaml has no template and is not listed under manage")
		assert.Equal(t, string(was), w.Node.PodManifest("velum.yaml"))
		began := time.Now()
		s = w.observe()
		assert.Zero(t, time.Since(began), "it is not proved again and again")
		assert.Equal(t, status.StateFailed, s.State)
		w.Node.Crash(bad.Digest, false)
		w.Node.Sync()
		w.Clock.Add(time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, bad.Digest, image(s, "velum.yaml", "velum").LastGood.Digest)
	})
}

func TestPodBrokenBeforeIsNotRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.Crash(first.Digest, true)
		w.Node.Restart("velum.yaml", "velum")
		second := w.bad(1, "1.2")
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "velum did not run before either")
		assert.Equal(t, status.ErrorNotUp, out[0].ErrorKind)
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
		assert.Equal(t, status.StateFailed, s.State)
		w.Node.Crash(second.Digest, false)
		w.Node.Sync()
		w.Clock.Add(time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

func TestRollbackByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		out, s, err := w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultNothing, out[0].Result)
		assert.Zero(t, s.SchemaVersion)
		second := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", second.Digest)
		w.Registry.Down(agenttest.ErrRefused) // a registry need not have it any more
		out, _, err = w.agent.Rollback(t.Context(), plan.Which{})
		require.ErrorIs(t, err, plan.ErrWhich)
		assert.Nil(t, out)
		w.runs("velum.yaml", "velum", second.Digest)
		var heard []status.Progress
		w.agent.Progress = func(p status.Progress) { heard = append(heard, p) }

		out, _, err = w.agent.Rollback(t.Context(), plan.Named("velum"))

		require.NoError(t, err)
		require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		assert.Equal(t, "runs 4.0.0-rev1-build1.1", out[0].Reason)
		edits := []status.Edit{{Container: "velum", Field: "image", From: "4.0.0-rev2-build1.2", To: "4.0.0-rev1-build1.1"}}
		assert.Equal(t, edits, out[0].Edits)
		assert.Equal(t, status.Progress{
			Reference: "velum.yaml", PodManifest: "velum.yaml", Phase: "returning", Edits: edits,
		}, heard[0], "before it begins")
		assert.Equal(t, status.Progress{
			Reference: "velum", PodManifest: "velum.yaml", Phase: "done", Ended: "waiting",
		}, heard[len(heard)-1], "its end")
		w.runs("velum.yaml", "velum", first.Digest)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
		w.Registry.Down(nil)
		s = w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, "nothing to apply; velum.yaml was rolled back to 4.0.0-rev1-build1.1 and 4.0.0-rev2-build1.2 is denied, "+
			"until apply --retry velum.yaml or a newer release", s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
		back := podOf(s, "velum.yaml").RolledBack
		require.NotNil(t, back, "how to go forward again")
		assert.True(t, back.ByHand)
		assert.Equal(t, []string{"4.0.0-rev2-build1.2"}, back.Denied)
		assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, back.Runs)
		out, _, err = w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultNothing, out[0].Result, "what was rolled back is no rollback target")

		out, s = w.retry()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Nil(t, podOf(s, "velum.yaml").RolledBack)
		assert.NotContains(t, s.Reason, "rolled back")
	})
}

func TestRollbackIsHeldWhileTheNodeIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		w.apply()
		w.Grain.SetBusy("update_in_progress")
		out, _, err := w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultHeld, out[0].Result)
		w.Grain.SetBusy("")
		w.Against = []status.Hold{{Name: "reboot", Reason: "scheduled"}}
		out, _, err = w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Equal(t, "reboot: scheduled", out[0].Reason)
		assert.Equal(t, "reboot", out[0].Hold)
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// The registry goes away when the pod is stopped: it comes up all the same.
func TestRegistryLostInTheMiddleOfAnApply(t *testing.T) {
	for kind, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				second := w.Registry.Release(velum, "4.0.0", rev, "1.2")
				w.check()
				w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
				w.Node.OnAside = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }

				out, s := w.apply()

				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", second.Digest)
				w.isPinned(second.Long, second.Digest)
				assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
				w.Registry.Down(nil)
				s = w.check()
				assert.Equal(t, status.StateCurrent, s.State, s.Reason)
				w.idle()
				third := w.Registry.Release(velum, "4.0.0", rev, "1.3")
				w.Node.OnStop, w.Node.OnAside = nil, nil
				w.check()
				out, _ = w.apply()
				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", third.Digest)
				assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
			})
		})
	}
}

// It comes back at once, but kubelet does not ask it again for long.
func TestRegistryLostForAMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error {
			w.Node.SetKubelet(false)
			time.AfterFunc(10*time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			return nil
		}
		w.Node.OnAside = func(string) error { w.Node.SetKubelet(true); w.Node.Sync(); return nil }
		began := time.Now()
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Less(t, time.Since(began), 10*time.Second)
		w.isPinned(second.Long, second.Digest)
		pass(10 * time.Second)
	})
}

// Killed between the failed proof and the rollback: the next start goes on.
func TestRollbackContinuesAfterACrash(t *testing.T) {
	for _, at := range []string{"set aside", "written"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := running(t)
				w.Policy.Settle = time.Second
				w.restart()
				w.bad(2, "9.9")
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				asides := 0
				w.Node.OnAside = func(string) error {
					if asides++; asides == 2 && at == "set aside" {
						kill()
					}
					return nil
				}
				w.agent.Progress = func(p status.Progress) {
					if asides == 2 && at == "written" {
						kill()
					}
				}
				_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
				require.NoError(t, err)
				assert.Contains(t, w.Disk.JSON(), `"pending"`)
				assert.Empty(t, w.Node.Aside())
				w.Node.OnAside = nil
				w.restart()
				s := w.observe()
				w.runs("velum.yaml", "velum", first.Digest)
				w.isPinned("4.0.0-rev1-build1.1", first.Digest)
				assert.Equal(t, status.StateFailed, s.State, s.Reason+w.Disk.JSON())
				assert.NotContains(t, w.Disk.JSON(), `"pending"`)
				w.observe()
				w.idle()
			})
		})
	}
}

// The content of the last good release is gone, and so is the registry: the
// rolling back waits, and says so.
func TestRollbackStagesALostImage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.Lose(first.Digest); return nil }
		w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "connection refused")
		assert.Equal(t, status.StateFailed, s.State)
		w.Node.OnStage = nil
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

func TestSecondContainerStaysPinnedWhenTheFirstIsUpdated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.check()
		w.apply()
		w.runs("velum.yaml", "db", db.Digest)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		s := w.check()
		require.Equal(t, "rebuild", image(s, "velum.yaml", "velum").Change)

		out, _ := w.apply()

		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", next.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		text := w.Node.PodManifest("velum.yaml")
		assert.Contains(t, text, mariadb+":10.0-rev1-build1.1@"+db.Digest.String())
		assert.Contains(t, text, velum+":4.0.0-rev1\n")
		w.idle()
	})
}
