// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestInterruptedApplyContinuesAtTheNextStart(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before the stop", "between two stops", "while waiting"} {
		run(t, at, func(t *testing.T) { interrupted(t, at) })
	}
}

func interrupted(t *testing.T, at string) {
	w, _, _ := twoContainers(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
	w.poll()
	ctx, kill := w.killable()
	var stops atomic.Int32
	w.Node.OnStop = func(string) error {
		if n := stops.Add(1); at == "before the stop" || (at == "between two stops" && n == 2) {
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
	assert.Equal(t, status.ResultContinues, out[0].Result)
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
	assert.False(t, image(s, "velum.yaml", "velum").PickedUp, "it was approved")
	assert.False(t, image(s, "velum.yaml", "db").PickedUp, "it was approved")
	assert.NotContains(t, w.Disk.JSON(), `"approved"`)
	w.idle()
}

func TestInterruptedRevisionIsNotPickedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.publish(2, "2.1")
		ctx, kill := w.killable()
		w.Node.SetKubelet(false) // kubelet reads the new file late
		w.agent.Progress = func(p status.Progress) {
			if p.Phase == "waiting" && strings.Contains(w.Node.PodManifest("velum.yaml"), "rev2") {
				kill()
			}
		}
		w.applyWith(ctx)
		require.Contains(t, w.Node.PodManifest("velum.yaml"), "rev2", "the crash came after the write")
		w.Node.SetKubelet(true)
		w.restart()

		s := w.observe()

		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.False(t, image(s, "velum.yaml", "velum").PickedUp)
	})
}

func TestConversionToTheSameImageIsVerified(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
		w.applies()
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
		parallel(t, name, func(t *testing.T) {
			w, first := running(t)
			second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
			w.poll()
			ctx, kill := context.WithCancel(t.Context())
			w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
			w.applyWith(ctx)
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

// Stopped between the restart and the health check: the next start runs the check, and still knows who approved the
// apply.
func TestUnverifiedApplyIsVerifiedAtTheNextStart(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	ctx, kill := context.WithCancel(t.Context())
	w.Node.OnStop = func(string) error { kill(); return nil }
	out, s, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	assert.Equal(t, status.ResultContinues, out[0].Result)
	assert.Contains(t, out[0].Reason, "interrupted")
	assert.Equal(t, first.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
	w.runs("velum.yaml", "velum", second.Digest)
	w.restart()
	s = w.observe()
	assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
	assert.False(t, image(s, "velum.yaml", "velum").PickedUp)
	assert.NotContains(t, w.Disk.JSON(), `"approved"`)
	w.observe()
	w.idle()
}

// A release that was rolled back meanwhile stays denied: a resumed apply removes only denials older than itself.
func TestContinuedApplySkipsAReleaseRolledBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.pulls(endless)
		answer := n.asks(t)
		_, applied := n.retries(t.Context(), "dex.yaml", "velum.yaml")
		pass(time.Minute)
		require.NoError(t, n.requests(t)["rollback"]())
		before, _ := n.Node.Container("velum.yaml", "main")
		n.pulls(nil)
		require.NoError(t, n.requests(t)["hold"]())
		require.NoError(t, n.requests(t)["resume"]())
		require.NoError(t, (<-applied).err)
		<-answer
		n.runs("velum.yaml", "main", before.Digests[0])
		assert.NotNil(t, podOf(n.Status(), "velum.yaml").RolledBack)
	})
}

// An interrupted cycle continues after its caller hangs up.
func TestInterruptedCycleContinuesWithoutItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.source.hangs(dex)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = n.Check(ctx, nil) }()
		synctest.Wait()
		n.Node.SetKubelet(false)
		written := n.written("velum.yaml")
		go func() {
			<-written
			cancel()
			n.source.hangs("")
			n.Node.SetKubelet(true)
			n.Node.Sync()
		}()
		require.NoError(t, n.requests(t)["rollback"]())
		pass(time.Second)
		assert.True(t, image(n.Status(), "dex.yaml", "main").Staged)
		assert.NotEmpty(t, n.Status().Updates)
	})
}

// The cycle that was interrupted last continues first: an apply does not wait for the check that it interrupted.
func TestLastInterruptedCycleContinuesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		n.Policy.MaxParallelStages = 1
		n.Node.OnStage = func(ctx context.Context, r release.Release) error {
			if r.Repository == dex {
				return endless(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return ctx.Err()
		}
		require.NoError(t, n.requests(t)["reload"]())
		answer := n.asks(t)
		_, applied := n.applies(t.Context(), "db.yaml")
		pass(5 * time.Second)
		require.NoError(t, n.requests(t)["hold"]())
		pass(time.Minute)
		require.Len(t, applied, 1)
		got := <-applied
		require.NoError(t, got.err)
		assert.Equal(t, status.ResultApplied, got.out[0].Result)
		n.end()
		<-answer
	})
}

// Other requests do not interrupt a request that restarts several pods.
func TestRollbackOfSeveralPodsIsNotInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		<-n.asks(t)
		require.NoError(t, n.requests(t)["apply"]())
		n.Policy.Settle = 10 * time.Second
		require.NoError(t, n.requests(t)["reload"]())
		_, answer := n.returns(t.Context(), "velum.yaml", "db.yaml")
		pass(5 * time.Second)
		require.NoError(t, n.requests(t)["hold"]())
		got := <-answer
		require.NoError(t, got.err)
		require.Len(t, got.out, 2)
		for _, o := range got.out {
			assert.Equal(t, status.ResultRolledBack, o.Result, o.PodManifest)
		}
	})
}

// The node cannot be observed from the moment when a person's request is saved: it goes on when the node can be observed
// again, and its outcome does not speak of a daemon that ends.
func TestRequestOnANodeThatCannotBeObservedContinues(t *testing.T) {
	t.Parallel()
	for verb, begins := range map[string]func(w *world) ([]status.Outcome, error){
		"apply": func(w *world) ([]status.Outcome, error) {
			out, _, err := w.agent.Apply(w.t.Context(), agent.ApplyRequest{Which: plan.All()})
			return out, err
		},
		"rollback": func(w *world) ([]status.Outcome, error) {
			out, _, err := w.agent.Rollback(w.t.Context(), plan.All())
			return out, err
		},
	} {
		run(t, verb, func(t *testing.T) {
			w, first, second := twoReleases(t)
			want := first
			if verb == "apply" {
				want = w.publish(3, "1.3")
			}
			w.agent.Recorder = &afterSave{w.Disk, func() { w.Node.Blind(assert.AnError) }}
			out, err := begins(w)
			require.ErrorIs(t, err, assert.AnError)
			require.Equal(t, status.ResultContinues, out[0].Result, out[0].Reason)
			assert.Equal(t, "interrupted: continues at the next observation of the node", out[0].Reason)
			w.runs("velum.yaml", "velum", second.Digest)
			w.agent.Recorder = w.Disk
			w.Node.Blind(nil)
			w.observe()
			w.runs("velum.yaml", "velum", want.Digest)
		})
	}
}

// The node cannot be observed at the end of an apply: what it has done stays done.
func TestApplyOnANodeThatCannotBeObservedAfterwardsIsApplied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := offered(t)
		w.agent.Progress = func(p status.Progress) {
			if p.Ended != "" && p.PodManifest == "velum.yaml" {
				w.Node.Blind(assert.AnError)
			}
		}
		out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		require.ErrorIs(t, err, assert.AnError)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	})
}
