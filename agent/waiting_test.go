// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// One pod that failed, a hold or a registry that is away does not hide what waits for approval.
func TestWhatWaitsIsSaidWhateverTheStateIs(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(t *testing.T, w *world, web release.Release)
		state  status.State
	}{
		"a pod was rolled back": {func(t *testing.T, w *world, web release.Release) {
			t.Helper()
			w.Node.Crash(web.Digest, true)
			out, _ := w.apply("velum.yaml")
			require.Equal(t, status.ResultFailed, out[0].Result)
			w.observe()
		}, status.StateFailed},
		"another pod is held": {func(t *testing.T, w *world, _ release.Release) {
			t.Helper()
			_, _, err := w.agent.Hold(t.Context(), []string{"velum.yaml"}, false, record.PersonHold{})
			require.NoError(t, err)
		}, status.StateHeld},
		"the registry is away": {func(_ *testing.T, w *world, _ release.Release) {
			w.Registry.Down(agenttest.ErrRefused)
			w.check()
		}, status.StateStale},
		"a tag is gone": {func(_ *testing.T, w *world, _ release.Release) {
			w.Node.PutPodManifest("other.yaml", podYAML("other", "other="+etcd+":9"))
			w.check()
		}, status.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.Registry.Release(mariadb, "10.0", 1, "1.1")
				w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
				w.check()
				w.Registry.Release(mariadb, "10.0", 2, "2.1")
				web := w.Registry.Release(velum, "4.0.0", 2, "2.1")
				w.check()
				c.breaks(t, w, web)
				s := w.observe()
				require.Equal(t, c.state, s.State, s.Reason)
				assert.Contains(t, s.Reason, "waiting for approval: db.yaml (revision)")
				last := s.Reasons[len(s.Reasons)-1]
				assert.Equal(t, status.KindApproval, last.Kind)
				for _, f := range s.Failures {
					assert.NotEqual(t, status.KindApproval, f.Kind, "it is no failure")
				}
				assert.NotContains(t, s.Reason, "waiting for approval: velum.yaml")
			})
		})
	}
}

// A tag that nobody has ever seen is not found; one that was there is gone, also where only the node has seen it.
func TestOnlyATagThatWasThereIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutPodManifest("seen.yaml", podYAML("seen", "main="+velum+":4.0.0-rev1"))
	w.Node.PutPodManifest("typo.yaml", podYAML("typo", "main="+velum+":4.0.0-rev9"))
	w.check()
	w.Registry.Retract(velum, "4.0.0-rev1")
	s := w.check()
	require.Equal(t, status.StateFailed, s.State)
	kinds := map[string]status.Kind{}
	for _, r := range s.Reasons {
		kinds[r.PodManifest] = r.Kind
	}
	assert.Equal(t, map[string]status.Kind{"seen.yaml": status.KindTagGone, "typo.yaml": status.KindTagNotFound}, kinds, s.Reason)
	w.Disk.Lose()
	w.restart()
	s = w.check()
	for _, r := range s.Reasons {
		if r.PodManifest == "seen.yaml" && len(w.Node.Names(first.Digest)) > 0 {
			assert.Equal(t, status.KindTagGone, r.Kind, "the node has it by that tag: "+s.Reason)
		}
	}
}

// A denied release that runs is the headline: here its rollback waits for the lock of the fleet.
func TestWhatRunsAndIsDeniedIsTheHeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, second := member(t)
		w.check()
		w.runs("etcd.yaml", "etcd", second.Digest)
		w.Fleet.Give("other")
		back, s, err := w.agent.Rollback(t.Context(), plan.Named("etcd"))
		require.NoError(t, err)
		require.Equal(t, status.ResultHeld, back[0].Result, back[0].Reason)
		w.runs("etcd.yaml", "etcd", second.Digest)
		require.NotEmpty(t, s.Reasons)
		assert.Equal(t, status.KindDenied, s.Reasons[0].Kind, s.Reason)
		assert.Equal(t, second.Digest, s.Reasons[0].Digest)
		assert.Contains(t, s.Reason, "runs and is denied on this node")
	})
}

// A person who checks is answered by the registry, and not by what it said before.
func TestACheckTriesHostsAgainThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	p := &pacer{}
	w.agent.Pacer = p
	w.poll()
	assert.Zero(t, p.tries, "a poll leaves them alone")
	w.check()
	assert.Equal(t, 1, p.tries)
}

// While one pod is applied, the others wait still.
func TestWhatWaitsIsSaidDuringTheApplyOfAnother(t *testing.T) {
	const others = "applying what was approved; waiting for approval: db.yaml (revision)"
	for name, c := range map[string]struct {
		which plan.Which
		want  string
	}{
		"a pod manifest": {plan.Named("velum.yaml"), others},
		"a repository":   {plan.Named("velum"), others},
		"all":            {plan.All(), "applying what was approved"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := loop(t, 0, 0)
				defer l.end()
				l.Registry.Release(mariadb, "10.0", 1, "1.1")
				l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
				_, err := l.Check(t.Context(), nil)
				require.NoError(t, err)
				l.Registry.Release(velum, "4.0.0", 1, "1.2")
				l.Registry.Release(mariadb, "10.0", 2, "2.1")
				l.Node.Sync()
				s, err := l.Check(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, "waiting for approval: db.yaml (revision), velum.yaml (rebuild)", s.Reason)
				l.Node.SetKubelet(false)
				go func() {
					pass(3 * time.Second)
					assert.Equal(t, status.StateApplying, l.Status().State)
					assert.Equal(t, c.want, l.Status().Reason)
					l.Node.SetKubelet(true)
					l.Node.Sync()
				}()
				_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: c.which}, nil)
				require.NoError(t, err)
			})
		})
	}
}
