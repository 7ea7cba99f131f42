// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestInterruptedApplyContinuesAtTheNextStart(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before the stop", "between two stops", "while waiting"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { interrupted(t, at) })
		})
	}
}

func interrupted(t *testing.T, at string) {
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
	w.poll()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	stops := 0
	w.Node.OnStop = func(string) error {
		stops++
		if at == "before the stop" || (at == "between two stops" && stops == 2) {
			kill()
			return ctx.Err()
		}
		return nil
	}
	if at == "while waiting" {
		w.Node.SetKubelet(false)
		w.agent.Progress = func(p status.Progress) {
			if p.Phase == "waiting" {
				kill()
			}
		}
	}

	out, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})

	require.NoError(t, err)
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Contains(t, out[0].Reason, "interrupted")
	assert.Contains(t, w.Disk.JSON(), `"approved"`)
	assert.NotContains(t, w.Disk.JSON(), `"failed":{`)
	w.Node.OnStop = nil
	if at == "while waiting" {
		w.Node.SetKubelet(true)
		w.Node.Sync()
	}
	w.restart()
	s := w.observe()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", second.Digest)
	w.runs("velum.yaml", "db", db.Digest)
	assert.False(t, image(s, "velum.yaml", "velum").Adopted, "it was approved")
	assert.False(t, image(s, "velum.yaml", "db").Adopted, "it was approved")
	assert.NotContains(t, w.Disk.JSON(), `"approved"`)
	w.idle()
}

func TestInterruptedRevisionIsNotAdopted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.check()
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		w.Node.SetKubelet(false) // it is slow to see the new file
		w.agent.Progress = func(p status.Progress) {
			if p.Phase == "waiting" && strings.Contains(w.Node.PodManifest("velum.yaml"), "rev2") {
				kill()
			}
		}
		_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		require.NoError(t, err)
		require.Contains(t, w.Node.PodManifest("velum.yaml"), "rev2", "the crash came after the write")
		w.Node.SetKubelet(true)
		w.restart()

		s := w.observe()

		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
	})
}

func TestConversionIsProvedThoughTheImageIsTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := running(t)
		old, _ := w.Node.Container("velum.yaml", "velum")
		w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
		w.observe()
		w.Node.SetKubelet(false)
		waited := 0
		w.agent.Progress = func(p status.Progress) {
			if p.Phase != "waiting" {
				return
			}
			if waited++; waited == 5 {
				w.Node.Sync()
			}
		}
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		now, _ := w.Node.Container("velum.yaml", "velum")
		assert.NotEqual(t, old.ID, now.ID)
		assert.Equal(t, 5, waited)
	})
}

func TestApprovalIsVoid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(w *world)
		applied   bool
	}{
		"not by a restart alone":               {func(*world) {}, true},
		"not within a day":                     {func(w *world) { w.Clock.Add(23 * time.Hour) }, true},
		"after a day":                          {func(w *world) { w.Clock.Add(25 * time.Hour) }, false},
		"if it was given by a clock far ahead": {func(w *world) { w.Clock.Add(-10 * 365 * 24 * time.Hour) }, false},
		"if the offer changed":                 {func(w *world) { w.Registry.Release(velum, "4.0.0", 1, "1.3") }, false},
		"if the template changed": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "more="+velum+":__TAG__"))
		}, false},
		"if the template changed elsewhere": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
		}, false},
		"if the template is gone": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", nil)
			w.Node.PutTemplate("other.yaml", podYAML("other", "other="+velum+":__TAG__"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first := running(t)
			second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
			w.poll()
			ctx, kill := context.WithCancel(t.Context())
			w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
			_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
			require.NoError(t, err)
			require.Contains(t, w.Disk.JSON(), `"approved"`)
			w.Node.OnStop = nil
			c.meanwhile(w)
			w.restart()

			w.poll()

			want := first.Digest
			if c.applied {
				want = second.Digest
			}
			w.runs("velum.yaml", "velum", want)
			assert.NotEmpty(t, w.Node.PodManifest("velum.yaml"))
			assert.NotContains(t, w.Disk.JSON(), `"approved"`)
		})
	}
}

func TestInterruptedApplyWaitsForABusyNode(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	ctx, kill := context.WithCancel(t.Context())
	w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
	_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	w.Node.OnStop = nil
	w.Grain.SetBusy("the grain update_in_progress is true")
	w.restart()
	w.observe()
	w.runs("velum.yaml", "velum", first.Digest)
	w.Grain.SetBusy("")
	w.observe()
	w.runs("velum.yaml", "velum", second.Digest)
}

// Stopped between the restart and its proof: the next start proves it, and still
// knows who wanted it.
func TestUnprovedApplyIsProvedAtTheNextStart(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	ctx, kill := context.WithCancel(t.Context())
	w.Node.OnStop = func(string) error { kill(); return nil }
	out, s, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Contains(t, out[0].Reason, "interrupted")
	assert.Equal(t, first.Digest, image(s, "velum.yaml", "velum").LastGood.Digest)
	w.runs("velum.yaml", "velum", second.Digest)
	w.restart()
	s = w.observe()
	assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastGood.Digest)
	assert.False(t, image(s, "velum.yaml", "velum").Adopted)
	assert.NotContains(t, w.Disk.JSON(), `"approved"`)
	w.observe()
	w.idle()
}
