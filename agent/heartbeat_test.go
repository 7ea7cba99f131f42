// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// slowly lets a test's time pass during remote calls.
func slowly(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time

// slowPulls are pods whose runtime takes its time for a pull.
type slowPulls struct{ *agenttest.Node }

func (s slowPulls) Pull(ctx context.Context, ref release.Reference) (digest.Digest, error) {
	slowly(10 * time.Minute)
	return s.Node.Pull(ctx, ref)
}

// slowKeys are signatures that take their time.
type slowKeys struct{ *agenttest.Verifier }

func (s slowKeys) Verify(ctx context.Context, r release.Release) (string, error) {
	slowly(4 * time.Minute)
	return s.Verifier.Verify(ctx, r)
}

// The loop sends heartbeats while remote calls block: systemd kills a daemon that is silent for
// three minutes, and checks each 90 s.
func TestHeartbeatsContinueDuringRemoteCalls(t *testing.T) {
	t.Parallel()
	for slow, arrange := range map[string]func(w *world){
		"nine tags, each half a minute": func(w *world) {
			for n := range 9 {
				w.Registry.Publish(velum, fmt.Sprintf("4.0.0-rev%d", n+1))
			}
			w.Registry.OnAsk = func(string, string) { slowly(29 * time.Second) }
		},
		"a tag list": func(w *world) {
			w.Registry.OnAsk = func(what, _ string) {
				if what == "tags" {
					slowly(4*time.Minute + 50*time.Second)
				}
			}
		},
		"a staging": func(w *world) {
			w.Node.OnStage = func(context.Context, release.Release) error { slowly(50 * time.Minute); return nil }
		},
		"a pull in kubelet's name": func(w *world) {
			w.Policy.PullPolicy = "IfNotPresent"
			w.restart()
			w.agent.Pods = slowPulls{w.Node}
		},
		"a signature": func(w *world) {
			w.Policy.Rule = func(string) policy.Rule {
				return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesWarn}
			}
			w.restart()
			w.agent.Verifier = slowKeys{agenttest.NewVerifier("sha256:ours")}
		},
	} {
		t.Run(slow, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
				w.check()
				arrange(w)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				began := time.Now()
				gap, last := time.Duration(0), began
				w.agent.Progress = func(status.Progress) { gap, last = max(gap, time.Since(last)), time.Now() }
				w.check()
				w.apply()
				require.Greater(t, time.Since(began), 3*time.Minute, "it was slow")
				assert.LessOrEqual(t, max(gap, time.Since(last)), 45*time.Second)
			})
		})
	}
}

// A runtime that says "canceled" ends no daemon: its word is a failure like others.
func TestForeignCancellationIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Node.Blind(context.Canceled)
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.Error(t, err)
		assert.Equal(t, status.StateFailed, l.Status().State)
		assert.NotEmpty(t, l.Status().Reason)
	})
}

// slowRuntime are pods whose runtime takes its time to list them.
type slowRuntime struct {
	*agenttest.Node
	slow atomic.Bool
}

func (s *slowRuntime) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if s.slow.Load() {
		slowly(time.Minute)
	}
	return s.Node.Containers(ctx)
}

// A slow observation after an apply does not report the apply's last progress again.
func TestSlowObservationAfterAnApplyIsNotApplying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		runtime := &slowRuntime{Node: l.Node}
		l.agent.Pods = runtime
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")}, nil)
		require.NoError(t, err)
		pass(10 * time.Second)
		require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		runtime.slow.Store(true)
		for range 20 * 60 {
			pass(time.Second)
			require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		}
	})
}
