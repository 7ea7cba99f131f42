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
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// twoReleases returns a pod that runs the second of two releases.
func twoReleases(t *testing.T) (w *world, first, second release.Release) {
	t.Helper()
	w, first = running(t)
	second = w.publish(2, "1.2")
	w.applies()
	w.runs("velum.yaml", "velum", second.Digest)
	return w, first, second
}

// A rollback that was requested and then interrupted by the end of the daemon begins in the first cycle of the next
// one, or never: whatever holds it ends it.
func TestInterruptedRollbackRunsAtTheNextStartOrNever(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		meets, ends func(w *world)
		rolledBack  bool
	}{
		"nothing": {meets: func(*world) {}, rolledBack: true},
		"a busy node": {
			meets: func(w *world) { w.Grain.SetBusy("update_in_progress") }, ends: func(w *world) { w.Grain.SetBusy("") },
		},
		"a scheduled reboot": {
			meets: func(w *world) { w.Against = []status.Hold{{Name: status.HoldReboot, Reason: "scheduled"}} },
			ends:  func(w *world) { w.Against = nil },
		},
		"a hold on all":       {meets: func(w *world) { w.hold(record.PersonHold{}) }, ends: func(w *world) { resumeAll(w) }},
		"a hold on the image": {meets: func(w *world) { w.hold(record.PersonHold{}, "velum") }, ends: func(w *world) { resumeAll(w) }},
		"a broken template": {
			meets: func(w *world) { w.Node.PutTemplate("velum.yaml", []byte("kind: [Pod")) },
			ends:  func(w *world) { w.brings("4.0.0-rev1") },
		},
	} {
		run(t, title, func(t *testing.T) {
			w, first, second := twoReleases(t)
			ctx, kill := w.killable()
			w.agent.Recorder = &afterSave{w.Disk, kill}
			out, _, err := w.agent.Rollback(ctx, plan.All())
			require.NoError(t, err)
			require.Equal(t, status.ResultContinues, out[0].Result, out[0].Reason)
			assert.Empty(t, w.record().Denied, "nothing was denied yet")
			w.restart()
			c.meets(w)
			w.observe()
			if c.rolledBack {
				w.runs("velum.yaml", "velum", first.Digest)
				assert.Contains(t, w.record().Denied, release.Key(velum, second.Digest))
				return
			}
			c.ends(w)
			for range 3 {
				w.Clock.Add(time.Hour)
				s := w.observe()
				assert.NotEqual(t, status.StateFailed, s.State, s.Reason)
			}
			w.runs("velum.yaml", "velum", second.Digest)
			assert.Empty(t, w.record().Denied)
			assert.Empty(t, w.record().Overrides)
			out, _ = w.rollback()
			assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		})
	}
}

// A rollback that is held after an earlier rollback leaves that one as it is.
func TestHeldRollbackKeepsTheEarlierOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Prune.Keep = 3
		w.restart()
		second := w.publish(2, "1.2")
		w.applies()
		w.publish(3, "1.3")
		w.applies()
		w.rollback()
		w.runs("velum.yaml", "velum", second.Digest)
		before := w.record()
		w.Node.Lose(first.Digest)
		w.Registry.Down(agenttest.ErrRefused)
		out, s := w.rollback()
		require.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		assert.Zero(t, s.SchemaVersion, "no cycle has run")
		after := w.record()
		assert.Equal(t, before.Overrides, after.Overrides)
		assert.Equal(t, before.Denied, after.Denied)
		w.isPinned(second.Long, second.Digest)
	})
}

// The rollback target was removed from the node. The agent fetches it again; while it cannot, no rollback is possible,
// and a try changes nothing.
func TestRollbackTargetIsFetchedAgain(t *testing.T) {
	t.Parallel()
	for title, lose := range map[string]func(w *world, target release.Release){
		"its content":             func(w *world, r release.Release) { w.Node.Lose(r.Digest) },
		"its record":              func(w *world, r release.Release) { w.Node.PruneAll(r.Digest) },
		"its record and content":  func(w *world, r release.Release) { w.Node.PruneAll(r.Digest); w.Node.Lose(r.Digest) },
		"what the agent wrote of": func(w *world, r release.Release) { w.Node.PruneAll(r.Digest); w.restart() },
	} {
		run(t, title, func(t *testing.T) {
			w, first, second := twoReleases(t)
			w.Registry.Down(agenttest.ErrRefused)
			lose(w, first)
			s := w.observe()
			pod := podOf(s, "velum.yaml")
			assert.False(t, pod.CanRollBack)
			assert.Contains(t, pod.NoRollback, first.Long)
			assert.Contains(t, pod.NoRollback, "refused")
			assert.Nil(t, image(s, "velum.yaml", "velum").Previous)
			out, _ := w.rollback()
			require.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
			assert.Contains(t, out[0].Reason, "nothing was changed")
			assert.Empty(t, w.record().Denied)
			assert.Empty(t, w.record().Overrides)
			s = w.observe()
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			w.runs("velum.yaml", "velum", second.Digest)

			w.Registry.Down(nil)
			s = w.observe()
			assert.True(t, podOf(s, "velum.yaml").CanRollBack)
			assert.Empty(t, podOf(s, "velum.yaml").NoRollback)
			assert.True(t, w.Node.Pinned(velum, first.Digest))
			w.idle()
			w.Registry.Down(agenttest.ErrRefused)
			out, _ = w.rollback()
			assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
			w.runs("velum.yaml", "velum", first.Digest)
		})
	}
}

// The registry has deleted the target, too: it is asked again by polls only.
func TestRollbackTargetThatIsGoneIsAskedForByPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := twoReleases(t)
		w.Node.Lose(first.Digest)
		w.Registry.Vanish(velum, first.Digest)
		asked := 0
		w.Node.OnStage = func(context.Context, release.Release) error { asked++; return nil }
		for range 3 {
			s := w.observe()
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			assert.Contains(t, podOf(s, "velum.yaml").NoRollback, "not found")
		}
		assert.Equal(t, 1, asked)
		w.check()
		assert.Equal(t, 2, asked)
	})
}

// Of two containers only one has another release to return to, and the image of the other one is lost.
func TestRollbackNeedsTheImagesThatItKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		w.publish(1, "1.2")
		w.applies()
		assert.True(t, podOf(w.observe(), "velum.yaml").CanRollBack)
		w.Node.Lose(db.Digest)
		w.Registry.Down(agenttest.ErrRefused)
		s := w.observe()
		assert.False(t, podOf(s, "velum.yaml").CanRollBack)
		assert.Contains(t, podOf(s, "velum.yaml").NoRollback, mariadb)
		w.Registry.Down(nil)
		assert.True(t, podOf(w.observe(), "velum.yaml").CanRollBack)
	})
}

// Without targets there is nothing to fetch.
func TestNoTargetsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Prune.Keep = 0
		w.restart()
		w.publish(2, "1.2")
		w.applies()
		assert.False(t, podOf(w.observe(), "velum.yaml").CanRollBack)
		assert.False(t, w.Node.Pinned(velum, first.Digest))
		w.idle()
	})
}

// A person edits the pod manifest at the moment of the rollback: the edit wins, and nothing is denied.
func TestRollbackThatMeetsAnEditDeniesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := twoReleases(t)
		w.Node.OnAside = func(string) error { return release.ErrConflict }
		out, _, err := w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, errors.Join(err))
		assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
		assert.Empty(t, w.record().Denied)
		assert.Empty(t, w.record().Overrides)
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

func resumeAll(w *world) {
	w.t.Helper()
	_, _, err := w.agent.Resume(w.t.Context(), nil, true)
	require.NoError(w.t, err)
}
