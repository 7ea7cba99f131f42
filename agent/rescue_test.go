// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
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

// slowInit is a runtime in whose new sandboxes init containers take a while.
type slowInit struct {
	node.Pods
	old  string // the previous sandbox
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

// Init containers run longer than rescueAnyway.
func TestSlowInitContainersAreNotRescued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := withInit(t)
		w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		c, _ := w.Node.Container("velum.yaml", "db")
		var from time.Time
		w.agent.Pods = slowInit{w.Node, c.Sandbox, &from, 20 * time.Second}
		asides := 0
		w.Node.OnAside = func(string) error { asides++; return nil }
		w.applies()
		assert.Equal(t, 1, asides, "the pod is made anew once")
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// Another pod runs well with a release that is denied elsewhere.
func TestPodThatRunsADeniedReleaseIsUpdated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("a.yaml", podYAML("a", "velum="+velum+":4.0.0"))
		w.Node.PutTemplate("b.yaml", podYAML("b", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		second := w.publish(1, "1.2")
		out, _, _ := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("b.yaml")})
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.Node.Crash(second.Digest, true) // only in a.yaml: b runs already
		out, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("a.yaml")})
		assert.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		w.Node.Crash(second.Digest, false)
		w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		out, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("b.yaml")})
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	})
}

// The rollback target no longer exists.
func TestLostRollbackTargetIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.onFirstStop(func() { w.Node.Lose(first.Digest) })
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

// The readiness check always fails with an error.
func TestReadinessErrorDoesNotBlockTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", []byte(string(podYAML("velum", "velum="+velum+":__TAG__"))+"    readinessProbe: {tcpSocket: {port: 80}}\n"))
		w.check()
		w.publish(1, "1.2")
		w.agent.Readiness = neverReady{err: errors.New("connection refused")}
		w.apply()
		var total time.Duration
		for range 6 {
			w.Clock.Add(10 * time.Minute)
			began := time.Now()
			w.observe()
			total += time.Since(began)
		}
		assert.Less(t, total, 3*time.Minute)
	})
}

// SIGTERM right before the end of an apply leaves nothing pending; the rescue is of a pod with an init container.
func TestRescueOfAPodWithAnInitContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := withInit(t)
		db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.Node.OnStop = func(string) error { w.Registry.Down(errors.New("connection refused")); return nil }
		w.applies()
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// The pod did not go down in time, and kubelet reads the new pod manifest 12 s after it was written.
func TestShutdownTimeoutDelaysTheRescue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.publish(2, "1.2")
		cleared, asides := 0, 0
		w.agent.Pods = sandboxes{w.Node, time.Now().Add(time.Hour), nil, &cleared}
		w.Node.OnAside = func(string) error {
			if asides++; asides == 1 {
				w.Node.SetKubelet(false)
				time.AfterFunc(52*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			}
			return nil
		}
		w.apply()
		assert.Equal(t, 1, asides)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// The registry goes away while an init container runs.
func TestRegistryLostWhileAnInitContainerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := withInit(t)
		db := w.Registry.Release(mariadb, "10.0", 2, "1.2")
		w.check()
		asides := 0
		w.Node.OnAside = func(string) error {
			if asides++; asides == 1 {
				w.Registry.Vanish(mariadb, db.Digest) // only of db: setup can still be pulled
				w.Registry.Retract(mariadb, "10.0-rev2")
			}
			return nil
		}
		w.applies()
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// record returns the record on disk.
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
		w, first, db := twoContainers(t)
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

// edited is kubelet's directory with an edit right before the agent writes.
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
		w.onFirstStop(func() { w.Node.Crash(first.Digest, true) })
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "4.0.0-rev1-build1.1 does not become healthy either")
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
		next := w.publish(1, "9.10")
		out, s = w.apply()
		assert.NotEqual(t, status.ResultNothing, out[0].Result)
		w.runs("velum.yaml", "velum", next.Digest)
		_ = s
	})
}

// An interrupted health check of a release that kubelet picked up denies nothing.
func TestInterruptedHealthCheckOfAPickedUpReleaseDeniesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 30 * time.Second
		w.restart()
		second := w.publish(1, "1.2")
		w.Node.Restart("velum.yaml", "velum")
		ctx, kill := w.killable()
		time.AfterFunc(10*time.Second, kill)
		_, err := w.agent.Cycle(ctx, source.PollNone)
		require.NoError(t, err)
		r := w.record()
		assert.Empty(t, r.Denied)
		assert.Empty(t, r.Failed)
		w.restart()
		s := w.observe()
		assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
	})
}

// CRI lists a new name late: the pod manifest names it only after that.
func TestRollbackWaitsUntilCRIListsTheDigest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.onFirstStop(func() { w.Node.Unlisted = 4 })
		asked := -1
		w.Node.OnAside = func(string) error { asked = w.Node.Unlisted; return nil }
		w.apply()
		assert.Zero(t, asked)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// After a person's rollback, the approval ends, and only the replaced release is denied, by the person.
func TestRollbackByHandEndsTheApproval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, db := twoContainers(t)
		second := w.publish(1, "1.2")
		w.apply()
		w.publish(2, "1.3")
		ctx, kill := w.killable()
		w.Node.OnAside = func(string) error { kill(); return nil }
		w.applyWith(ctx)
		require.NotEmpty(t, w.record().Approved, "it goes on at the next start")
		w.Node.OnAside = nil
		w.restart()
		out, s := w.rollback()
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

// The rescue asks whether the registry answers: not at once, and not all the time.
func TestRescueAsksTheRegistryAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.publish(1, "1.2")
		w.onFirstStop(func() {
			w.Node.SetKubelet(false)
			time.AfterFunc(3*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			w.Registry.Counts()
		})
		var asked []time.Duration
		began := time.Now()
		w.Registry.OnAsk = func(string, string) { asked = append(asked, time.Since(began)) }
		w.applies()
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, asked)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256", "it is there")
	})
}

// The registry is down for a second, just when kubelet asks it: kubelet retries after 10 to 15 s, but starts a new pod
// from a new pod manifest at once.
func TestRescueDoesNotWaitForKubelet(t *testing.T) {
	t.Parallel()
	for _, asked := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		run(t, asked.String(), func(t *testing.T) {
			w, _ := running(t)
			w.Policy.Settle, w.Policy.Forgets = 0, apply.KubeletForgets
			w.restart()
			second := w.publish(1, "1.2")
			var stopped time.Time
			w.Node.OnStop = func(string) error {
				w.Node.OnStop, stopped = nil, time.Now()
				w.Node.SetKubelet(false) // it is held, and waits
				time.AfterFunc(asked, func() { w.Registry.Down(agenttest.ErrRefused) })
				time.AfterFunc(asked+time.Second, func() { w.Registry.Down(nil) })
				time.AfterFunc(10*time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
				return nil
			}
			w.Node.OnAside = func(string) error { w.Node.SetKubelet(true); w.Node.Sync(); return nil }
			w.applies()
			w.runs("velum.yaml", "velum", second.Digest)
			assert.LessOrEqual(t, time.Since(stopped), asked+4*time.Second, "three after its return")
		})
	}
}

// One rescue is tried: a pod that does not start then is rolled back.
func TestRescueIsTriedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.publish(1, "1.2")
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

// rollbackPending returns a pod whose apply has failed and whose rollback waits: the node has lost the previous release
// and cannot pull it.
func rollbackPending(t *testing.T) (w *world, first release.Release) {
	t.Helper()
	w, first = running(t)
	w.bad(1, "9.9")
	w.onFirstStop(func() { w.Node.Lose(first.Digest) })
	w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
	w.apply()
	require.True(t, w.record().Overrides["velum.yaml"].Pending)
	return w, first
}

// kubelet waits before it starts a container that has ended twice, at first ten seconds and at most five minutes.
func TestTimeoutSaysThatKubeletHasNotStartedTheContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.publish(1, "1.2")
		w.onFirstStop(func() { w.Node.SetKubelet(false) })
		out, _ := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "kubelet has not started velum from 4.0.0-rev1-build1.2")
	})
}
