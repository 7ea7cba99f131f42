// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestApplyIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(w *world)
		reason string
		state  status.State
	}{
		"the registry is away": {
			func(w *world) { w.Registry.Down(agenttest.ErrRefused) }, "registry away", status.StateHeld,
		},
		"the floating tag has moved on": {
			func(w *world) { w.Registry.Release(velum, "4.0.0", 1, "1.3") }, "has moved on", status.StateStaged, // to what is staged by now, and waits for an approval of its own
		},
		"somebody edits the file at the last moment": {
			func(w *world) {
				w.Registry.OnAsk = func(string, string) {
					w.Registry.OnAsk = nil
					w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1", "more="+mariadb+":10.0"))
				}
			}, "changed by another program or a person", status.StateHeld,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			old := podYAML("velum", "velum="+velum+":4.0.0")
			w.Node.PutPodManifest("velum.yaml", old)
			w.Node.PutTemplate("velum.yaml", old)
			w.check()
			c.breaks(w)

			out, s := w.apply()

			assert.Equal(t, status.ResultHeld, out[0].Result)
			assert.Contains(t, out[0].Reason, c.reason)
			assert.Equal(t, c.state, s.State, s.Reason)
			assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "imagePullPolicy")
			w.runs("velum.yaml", "velum", first.Digest)
			assert.NotContains(t, w.Disk.JSON(), `"approved"`, "the approval is used up")
			assert.NotContains(t, w.Disk.JSON(), `"failed"`, "nothing went wrong")
		})
	}
}

// An approval is used up by an apply that is held. Until a source answers, the status says why it came to nothing: also
// in later cycles, and after a restart.
func TestStatusRemembersAHeldApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		w.Registry.Down(agenttest.ErrRefused)
		out, _ := w.apply()
		require.Equal(t, status.ResultHeld, out[0].Result)
		w.Clock.Add(time.Minute)

		w.observe()
		w.restart()
		s := w.observe()

		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		require.Len(t, s.Reasons, 1)
		at := s.Reasons[0]
		assert.Equal(t, status.KindApproval, at.Kind)
		assert.Equal(t, status.ErrorSource, at.ErrorKind)
		assert.Equal(t, w.Clock.Now().Add(-time.Minute).UTC(), at.Since)
		assert.Contains(t, at.Held, "registry away: ")
		assert.Contains(t, s.Reason, "waiting for approval: velum.yaml (revision; the apply of "+at.Since.Format(time.RFC3339)+
			" was held: registry away: ")

		s = w.check()
		assert.Equal(t, status.StateStale, s.State, "the source says so itself")
		assert.Contains(t, s.Reason, "was held: registry away: ")
		w.Registry.Down(nil)
		w.Clock.Add(time.Hour)
		s = w.check()
		assert.Equal(t, "waiting for approval: velum.yaml (revision)", s.Reason, "it answers again")
		assert.NotContains(t, w.Disk.JSON(), `"heldBack"`)
	})
}

// What ends the memory of a held apply but an answer: the apply, and another offer.
func TestAHeldApplyIsForgotten(t *testing.T) {
	for name, ends := range map[string]func(w *world){
		"applied": func(w *world) {
			out, _ := w.apply()
			require.Equal(w.t, status.ResultApplied, out[0].Result)
		},
		"nothing is offered": func(w *world) {
			w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Rebuild} }
			w.restart()
			w.observe()
		},
		"the pod manifest is gone": func(w *world) {
			w.Node.PutTemplate("velum.yaml", nil)
			w.Node.PutPodManifest("velum.yaml", nil)
			w.observe()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				w.check()
				w.Registry.Down(agenttest.ErrRefused)
				w.apply()
				require.Contains(t, w.Disk.JSON(), `"heldBack"`)
				w.Registry.Down(nil)
				ends(w)
				assert.NotContains(t, w.Disk.JSON(), `"heldBack"`)
			})
		})
	}
}

func TestApplyOfNothingOrOfAnUnknownPodIsRefused(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	assert.Equal(t, []status.Outcome{{PodManifest: "velum.yaml", Result: status.ResultNothing}}, out)
	_, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("elum")})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
	for _, name := range []string{"velum", velum, "v4/velum", "velum.yaml"} {
		_, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named(name)})
		require.NoError(t, err, name)
	}
}

func TestApplyNeedsASavedApproval(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	w.Disk.Fail(errors.New("no space left on device"))

	_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})

	require.ErrorContains(t, err, "no space left")
	w.runs("velum.yaml", "velum", first.Digest)
}

func TestLastGoodStaysPinnedOverCrashingRebuilds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		for _, build := range []string{"1.2", "1.3", "1.4"} {
			bad := w.Registry.Release(velum, "4.0.0", 1, build)
			w.Node.Crash(bad.Digest, true)
			w.poll()
			w.Node.Restart("velum.yaml", "velum") // kubelet takes it by itself
			w.observe()
			w.Node.Collect()
		}
		assert.True(t, w.Node.Pinned(velum, first.Digest))
	})
}

func TestIfNotPresentPullsThroughCRIFirst(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.PullPolicy = "IfNotPresent"
	w.restart()
	w.check()
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	assert.NotContains(t, w.Node.Names(second.Digest), velum+":4.0.0-rev1", "staging leaves the floating tag alone")

	out, _ = w.apply()

	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.runs("velum.yaml", "velum", second.Digest)
	assert.Contains(t, w.Node.Names(second.Digest), velum+":4.0.0-rev1")
}

func TestTwoContainersOfOneRepositoryAreStagedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0", "b="+velum+":4.0.0", "init:c="+velum+":4.0.0"))
	w.check()
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Registry.Counts()

	s := w.poll()

	assert.Equal(t, 1, w.Registry.Counts().Describes)
	assert.Len(t, s.Images, 3)
	assert.Len(t, w.Grain.Last().Updates, 1, "the UI hears of an image once")
	out, _ := w.apply("velum")
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	for _, c := range []string{"a", "b", "c"} {
		w.runs("velum.yaml", c, second.Digest)
	}
}

func TestStepErrorsAreReportedAtTheirObject(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.OnStage = func(context.Context, release.Release) error { return errors.New("no space left on device") }

	s := w.poll()

	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, image(s, "velum.yaml", "velum").Error, "no space left")
	assert.False(t, image(s, "velum.yaml", "velum").Staged)
	assert.Empty(t, w.Grain.Last().Updates, "never offered unstaged")
	out, _ := w.apply()
	assert.Equal(t, "not staged yet: stage: no space left on device", out[0].Reason)
}

// kubelet's garbage collection removed the staged image, and no cycle has noticed: one apply
// request suffices.
func TestLostReleaseIsStagedAgainBeforeAnApply(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	require.Equal(t, status.StateStaged, w.check().State)
	w.Node.Lose(next.Digest)
	out, s := w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", next.Digest)

	last := w.Registry.Release(velum, "4.0.0", 1, "1.3")
	require.Equal(t, status.StateStaged, w.check().State)
	w.Node.Lose(last.Digest)
	tried := 0
	w.Node.OnStage = func(context.Context, release.Release) error { tried++; return errors.New("no route to host") }
	out, s = w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Equal(t, "not staged yet: stage: no route to host", out[0].Reason)
	assert.Equal(t, 1, tried)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "no route to host")
	w.runs("velum.yaml", "velum", next.Digest)
}
