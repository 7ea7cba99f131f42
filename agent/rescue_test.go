// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// slowInit is a runtime in whose new sandboxes init containers take their time.
type slowInit struct {
	node.Pods
	old  string // the sandbox of before
	from *time.Time
	take time.Duration
}

func (s slowInit) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	all, used, err := s.Pods.Containers(ctx)
	var out []node.Container
	for _, c := range all {
		if c.Sandbox != s.old && !c.StartedAt.IsZero() {
			if s.from.IsZero() {
				*s.from = time.Now()
			}
			if time.Since(*s.from) < s.take {
				if c.Name != "setup" {
					continue
				}
				c.Running = true
			}
		}
		out = append(out, c)
	}
	return out, used, err
}

// N1: init containers that take longer than rescueAnyway.
func TestSlowInitContainersAreNotRescued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		c, _ := w.Node.Container("velum.yaml", "db")
		var from time.Time
		w.agent.Pods = slowInit{w.Node, c.Sandbox, &from, 20 * time.Second}
		asides := 0
		w.Node.OnAside = func(string) error { asides++; return nil }
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, 1, asides, "the pod is made anew once")
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// N4: another pod runs what is denied elsewhere, and well.
func TestPodThatRunsADeniedReleaseIsUpdated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("a.yaml", podYAML("a", "velum="+velum+":4.0.0"))
		w.Node.PutTemplate("b.yaml", podYAML("b", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		out, _, _ := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("b.yaml")})
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.Node.Crash(second.Digest, true) // on a.yaml only: b runs already
		out, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("a.yaml")})
		assert.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		w.Node.Crash(second.Digest, false)
		w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		out, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("b.yaml")})
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	})
}

// N6: nothing to go back to any more.
func TestLostRollbackTargetIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Lose(first.Digest); return nil }
		w.Registry.Vanish(velum, first.Digest)
		w.apply()
		w.observe()
		for range 3 {
			w.Clock.Add(10 * time.Minute)
			began := time.Now()
			s := w.observe()
			assert.Zero(t, time.Since(began))
			assert.Equal(t, status.StateFailed, s.State, s.Reason)
		}
	})
}

type neverReady struct {
	silentKubelet
	err error
}

func (n neverReady) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	return apply.Verdict{}, n.err
}

// N7: readiness can never be checked.
func TestReadinessErrorDoesNotBlockTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", []byte(string(podYAML("velum", "velum="+velum+":__TAG__"))+"    readinessProbe: {tcpSocket: {port: 80}}\n"))
		w.check()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.agent.Readiness = neverReady{err: errors.New("connection refused")}
		out, s := w.apply()
		t.Log(out, s.State, s.Reason)
		var total time.Duration
		for range 6 {
			w.Clock.Add(10 * time.Minute)
			began := time.Now()
			s = w.observe()
			total += time.Since(began)
		}
		t.Log(total, s.State, s.Reason)
		assert.Less(t, total, 3*time.Minute)
	})
}

// N10: SIGTERM right before the end of an apply keeps nothing pending; a rescue of a pod with an init container.
func TestRescueOfAPodWithAnInitContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.Node.OnStop = func(string) error { w.Registry.Down(errors.New("connection refused")); return nil }
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// N1b: the plain way: the pod did not go down in time, and kubelet takes the new
// pod manifest 12 s after it was written.
func TestShutdownTimeoutDelaysTheRescue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		cleared, asides := 0, 0
		w.agent.Pods = sandboxes{w.Node, time.Now().Add(time.Hour), nil, &cleared}
		w.Node.OnAside = func(string) error {
			if asides++; asides == 1 {
				w.Node.SetKubelet(false)
				time.AfterFunc(52*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			}
			return nil
		}
		out, _ := w.apply()
		t.Log(out)
		assert.Equal(t, 1, asides)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// N11: the registry goes away while an init container runs.
func TestRegistryLostWhileAnInitContainerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		db := w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		asides := 0
		w.Node.OnAside = func(string) error {
			if asides++; asides == 1 {
				w.Registry.Vanish(mariadb, db.Digest) // of db alone: setup is pulled still
				w.Registry.Retract(mariadb, "10.0-rev2")
			}
			return nil
		}
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "db", db.Digest)
	})
}
