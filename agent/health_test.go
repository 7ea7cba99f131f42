// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

func every(d time.Duration, times int) []time.Duration {
	var out []time.Duration
	for n := range times {
		out = append(out, time.Duration(n+1)*d+1)
	}
	return out
}

func TestVerifyingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = time.Second
		w.restart()
		w.publish(1, "1.2")
		var phases []string
		w.agent.Progress = func(p status.Progress) {
			phases = append(phases, p.Phase+" "+p.Reference+" "+p.Ended)
			assert.Equal(t, "velum.yaml", p.PodManifest)
		}
		w.apply()
		assert.Equal(t, []string{"changing velum.yaml ", "verifying velum ", "verifying velum ", "done velum verifying"}, phases)
	})
}

// The reason names the crashing container, whatever else is missing.
func TestCrashLoopNamesItsContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ApplyTimeout = 5 * time.Minute
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "db="+mariadb+":__TAG__"))
		w.check()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.badDB("1.2")
		for _, at := range every(10*time.Second, 3) {
			time.AfterFunc(at, w.Node.Sync)
		}
		time.AfterFunc(40*time.Second, func() {
			w.Node.Sync()
			w.Node.SetKubelet(false)
			w.Node.Restart("velum.yaml", "velum")
			time.AfterFunc(time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
		})
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "pod velum: db exited 5 times: db is not running (exit code 1); rolled back")
	})
}

// Each question has an end event, which says whether it was answered.
func TestEndOfEachQuestionIsReported(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	phases := map[string]int{}
	w.agent.Progress = func(p status.Progress) { phases[p.Phase+" "+p.Ended]++ }
	w.check()
	assert.NotZero(t, phases["asking "])
	assert.Equal(t, phases["asking "], phases["done asking"])
	clear(phases)
	w.Registry.Down(agenttest.ErrRefused)
	w.check()
	assert.NotZero(t, phases["asking "])
	assert.Equal(t, phases["asking "], phases["failed asking"])
}

func TestBrokenPodMovesToANewerRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.Crash(first.Digest, true)
		w.Node.Restart("velum.yaml", "velum")
		second := w.bad(1, "1.2")
		w.apply()
		w.bad(1, "1.3")
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

func TestLoopContinuesAfterATagHasMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		opens := time.Now().Add(time.Hour)
		w.Policy.Auto = true
		w.Policy.Window = func(now time.Time) (bool, time.Time) { return !now.Before(opens), opens }
		l := start(t, w, 12*time.Hour, 0)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.checks()
		third := w.Registry.Release(velum, "4.0.0", 1, "1.3")
		pass(time.Until(opens) + time.Minute)
		w.runs("velum.yaml", "velum", third.Digest)
	})
}

func TestPendingRollbackComesBeforeApplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t) // velum.yaml
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("a.yaml", podYAML("a", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Grain.SetBusy("busy"); return nil }
		w.apply("velum")
		require.Contains(t, w.Disk.JSON(), `"pending"`)
		w.Grain.SetBusy("")
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.agent = nil
		w.Grain.SetBusy("busy")
		w.check()
		w.Grain.SetBusy("")
		w.Policy.Auto = true
		w.restart()
		plan, err := w.agent.Plan(t.Context(), source.PollNone)
		require.NoError(t, err)
		var verbs []string
		for _, s := range plan.Steps {
			verbs = append(verbs, s.String())
		}
		assert.Contains(t, verbs[0], "roll back")
	})
}

func probed() []byte {
	return []byte(string(podYAML("velum", "velum="+velum+":__TAG__")) + "    readinessProbe: {tcpSocket: {port: 80}}\n")
}

// nowhere is a runtime that does not return a pod's address for the next calls.
type nowhere struct {
	*agenttest.Node
	left *int
}

func (n nowhere) Address(ctx context.Context, id string) (string, error) {
	if *n.left--; *n.left >= 0 {
		return "", errors.New("cri: deadline exceeded")
	}
	return n.Node.Address(ctx, id)
}

// A pod without a known address is not ready, but has not failed: the runtime is asked again.
func TestReadinessWaitsForTheAddressOfThePod(t *testing.T) {
	for name, c := range map[string]struct {
		failing int
		want    status.Result
	}{
		"fails once":      {1, status.ResultApplied},
		"fails for ever":  {1 << 30, status.ResultFailed},
		"answers at once": {0, status.ResultApplied},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", probed())
			w.check()
			second := w.publish(1, "1.2")
			left := c.failing
			w.agent.Readiness, w.agent.Pods = readyAll{}, nowhere{w.Node, &left}
			out, s := w.apply()
			assert.Equal(t, c.want, out[0].Result, out[0].Reason)
			assert.NotContains(t, out[0].Reason, "not checked")
			assert.NotContains(t, w.Disk.JSON(), `"denied"`)
			w.runs("velum.yaml", "velum", second.Digest)
			if c.want == status.ResultFailed {
				assert.Contains(t, s.Reason, "address of pod velum-")
			}
		})
	}
}

func TestRewritesChangeWhilePinned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		const other = "mirror.example/caasp/v4/velum"
		for _, d := range []release.Release{bad} {
			w.Registry.Restore(other, d.Digest, d.Build)
			w.Registry.Tag(other, "4.0.0-rev1", d.Digest)
			w.Registry.Tag(other, "4.0.0", d.Digest)
			w.Registry.Tag(other, "4.0.0-rev1-build9.9", d.Digest)
		}
		w.Policy.Rewrites = []manifests.Rewrite{{From: "registry.suse.com", To: "mirror.example"}}
		w.restart()
		s := w.check()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered, "the same digest under another name")
	})
}

// A failed pod recovered under a wrong clock.
func TestFailedPodRecoveredUnderAWrongClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Settle = 30 * time.Second
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
		w.check()
		bad := w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		w.Clock.Add(87600 * time.Hour)
		w.Node.Crash(bad.Digest, false)
		w.Node.Sync()
		w.Clock.Add(-87600*time.Hour + time.Hour)
		s := w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

// A rollback was interrupted after its write, and kubelet has removed the ended init container.
func TestRollbackContinuesWithoutTheInitContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Settle = time.Second
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.badDB("1.2")
		ctx, kill := w.killable()
		asides := 0
		w.Node.OnAside = func(string) error { asides++; return nil }
		w.agent.Progress = func(status.Progress) {
			if asides > 0 {
				kill()
			}
		}
		w.applyWith(ctx)
		require.Contains(t, w.Disk.JSON(), `"pending"`)
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.restart()
		s := w.observe()
		w.runs("velum.yaml", "db", db.Digest)
		assert.NotContains(t, s.Reason, "does not become healthy either")
	})
}

// A revision is denied, and updates allow a higher one; the followed tag is the running one.
func TestRebuildBelowADeniedRevisionIsOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(2, "9.9")
		w.apply()
		// OBS no longer builds rev1, but a registry may have such a rebuild
		r := w.Registry.Publish(velum, "4.0.0-rev1", "4.0.0-rev1-build1.2")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", r.Digest)
		w.idle()
	})
}

// systemd's watchdog must get a heartbeat at least every 45 s (a quarter of WatchdogSec).
func TestHeartbeatsContinueWhileAPodGoesDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "  terminationGracePeriodSeconds: 600\n"...))
		w.check()
		w.publish(2, "1.2")
		cleared := 0
		w.agent.Pods = sandboxes{w.Node, time.Now().Add(time.Hour), nil, &cleared}
		last, gap := time.Now(), time.Duration(0)
		w.agent.Progress = func(status.Progress) {
			gap = max(gap, time.Since(last))
			last = time.Now()
		}
		w.apply()
		gap = max(gap, time.Since(last))
		assert.LessOrEqual(t, gap, 45*time.Second)
	})
}

// late is a runtime that shows, until a given time, a container of the previous pod manifest.
type late struct {
	node.Pods
	c     node.Container
	until *time.Time
}

func (l late) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if time.Now().Before(*l.until) {
		return []node.Container{l.c}, nil, nil
	}
	return l.Pods.Containers(ctx)
}

// startsOnceMore makes kubelet start a release for a while when its pod manifest is set aside for the nth time: it had
// just been put back, and kubelet had begun to start it.
func (w *world) startsOnceMore(r release.Release, nth int, d time.Duration) {
	w.restart()
	c, _ := w.Node.Container("velum.yaml", "velum")
	c.ID, c.Sandbox, c.Running, c.Image, c.Digests = "late", "late", true, r.Config, []digest.Digest{r.Digest}
	var until time.Time
	w.agent.Pods = late{w.Node, c, &until}
	n := 0
	w.Node.OnAside = func(string) error {
		if n++; n == nth {
			until = time.Now().Add(d)
		}
		return nil
	}
}

// kubelet starts the old pod once more under the new pod manifest: the agent reports no moved tag, and the new pod
// passes the health check later.
func TestHealthCheckWaitsWhileTheOldPodStartsOnceMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		second := w.publish(2, "2.1")
		w.startsOnceMore(first, 1, 5*time.Second)
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)

		bad := w.bad(3, "3.1")
		w.startsOnceMore(second, 1, 5*time.Second)
		out, _ = w.apply()
		assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev2-build2.1")
		assert.Contains(t, w.record().Denied, denied(bad))
	})
}

// The same with a failing release during a rollback: the digest does not change.
func TestHealthCheckWaitsWhileTheBadPodStartsOnceMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(2, "2.1")
		w.startsOnceMore(bad, 2, 5*time.Second)
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev1-build1.1")
		assert.False(t, w.record().Overrides["velum.yaml"].Pending)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The tag was moved to the previous release at the last moment: the approved release has not failed.
func TestTagMovedDuringAnApplyCausesNoDenial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.publish(2, "2.1")
		w.Node.OnAside = func(string) error { w.Registry.Tag(velum, "4.0.0-rev2", first.Digest); return nil }
		out, _ := w.apply()
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Contains(t, out[0].Reason, "4.0.0-rev2 has moved")
		assert.Empty(t, w.record().Denied)
		assert.Empty(t, w.record().Failed)
	})
}

// After a boot the runtime shows only a container of an earlier pod until kubelet starts a known good release: the
// health check that waits for the earlier pod ends, and a healthy pod is not rolled back.
func TestHealthCheckEndsWhenKubeletStartsAKnownGoodRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		old, _ := w.Node.Container("velum.yaml", "velum")
		second := w.publish(1, "1.2")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		require.Equal(t, second.Digest, w.record().Good["velum.yaml/velum"].Running)
		old.Running, old.ExitCode, old.FinishedAt = false, 255, time.Now()
		old.Image, old.Digests = first.Config, []digest.Digest{first.Digest}
		until := time.Now().Add(10 * time.Second)
		w.agent.Pods = late{w.Node, old, &until}
		began := time.Now()

		w.observe()

		assert.LessOrEqual(t, time.Since(began), 11*time.Second)
		s := w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, second.Digest, w.record().Good["velum.yaml/velum"].Running)
		assert.Empty(t, w.record().Denied)
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// withPolicy returns podYAML with a restartPolicy.
func withPolicy(policy, name string, containers ...string) []byte {
	return []byte(strings.Replace(string(podYAML(name, containers...)), "spec:\n", "spec:\n  restartPolicy: "+policy+"\n", 1))
}

// besideABroken returns a pod with velum, and db, which has ended with an exit code.
func besideABroken(t *testing.T, code int32) (w *world, first, db release.Release) {
	t.Helper()
	w, first, db = twoContainers(t)
	w.Node.SetKubelet(false) // it waits for its back-off
	w.Node.End(db.Digest, code)
	w.Node.Restart("velum.yaml", "db")
	w.observe()
	w.Node.SetKubelet(true)
	return w, first, db
}

// A container that did not run before does not keep the others from their way back.
func TestEachContainerIsJudgedByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code    int32 // of db, before
		ends    bool  // the new release of velum
		dbEnds  bool  // db still ends
		killed  bool  // the agent, in the apply
		want    string
		isGood  bool // the new release
		running bool
	}{
		"the other gets worse":                     {code: 1, ends: true, dbEnds: true, want: "velum exited 5 times: velum is not running (exit code 1); rolled back to "},
		"the other gets worse, beside a done one":  {code: 0, ends: true, dbEnds: true, want: "velum exited 5 times: velum is not running (exit code 1); rolled back to "},
		"the other gets worse, and it recovers":    {code: 1, ends: true, want: "velum exited 5 times: velum is not running (exit code 1); rolled back to "},
		"nothing gets worse":                       {code: 1, dbEnds: true, isGood: true},
		"it recovers":                              {code: 1, isGood: true},
		"the agent was killed, and it gets worse":  {code: 1, ends: true, dbEnds: true, killed: true, want: "rolled back"},
		"the agent was killed, and nothing is bad": {code: 1, dbEnds: true, killed: true, isGood: true},
	} {
		run(t, name, func(t *testing.T) {
			w, first, db := besideABroken(t, c.code)
			w.Policy.ApplyTimeout = 5 * time.Minute
			w.restart()
			second := w.publish(1, "1.2")
			if c.ends {
				w.Node.Crash(second.Digest, true)
			}
			if !c.dbEnds {
				w.Node.Crash(db.Digest, false)
			}
			for _, at := range every(20*time.Second, 12) {
				time.AfterFunc(at, w.Node.Sync)
			}
			var why string
			if c.killed {
				ctx, kill := w.killable()
				w.onFirstStop(func() { time.AfterFunc(time.Second, kill) })
				w.applyWith(ctx)
				w.restart()
				why = w.observe().Reason
			} else {
				out, _ := w.apply()
				why = out[0].Reason
			}
			assert.Contains(t, why, c.want)
			want := first
			if c.isGood {
				want = second
			}
			s := w.observe()
			w.runs("velum.yaml", "velum", want.Digest)
			assert.Equal(t, want.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
			assert.Equal(t, !c.isGood, strings.Contains(w.Disk.JSON(), `"denied"`))
			assert.Equal(t, map[bool]status.Result{true: status.ResultApplied, false: status.ResultRolledBack}[c.isGood],
				resultOf(s, "velum"), "%+v", s.History)
		})
	}
}

// resultOf returns the last result of a container in the history.
func resultOf(s status.Status, container string) status.Result {
	for _, h := range s.History {
		if h.Container == container {
			return h.Result
		}
	}
	return ""
}

// A pod that does its work and ends is as good as its exit code.
func TestPodsThatRunOnce(t *testing.T) {
	t.Parallel()
	const job = "velum=" + velum + ":__TAG__"
	server := "db=" + mariadb + ":__TAG__"
	for name, c := range map[string]struct {
		policy     string
		containers []string
		before     int32 // exit code of the first release; -1: it still runs
		ends       []int32
		want       string // the reason; empty: applied
	}{
		"on failure, done":              {policy: "OnFailure", containers: []string{job}, ends: []int32{0}},
		"never, done":                   {policy: "Never", containers: []string{job}, ends: []int32{0}},
		"done while the old one runs":   {policy: "OnFailure", containers: []string{job}, before: -1, ends: []int32{0}},
		"never, while the old one runs": {policy: "Never", containers: []string{job}, before: -1, ends: []int32{0}},
		"never, and it fails":           {policy: "Never", containers: []string{job}, ends: []int32{1}, want: "velum is not running (exit code 1), and kubelet does not restart it; rolled back to "},
		"it is retried, then done":      {policy: "OnFailure", containers: []string{job}, ends: []int32{1, 1, 0}},
		"it fails for ever":             {policy: "OnFailure", containers: []string{job}, ends: []int32{1, 1, 1, 1, 1, 1, 1}, want: "velum exited 5 times: velum is not running (exit code 1); rolled back to "},
		"beside a server":               {policy: "OnFailure", containers: []string{job, server}, ends: []int32{0}},
		"always, and it ends":           {policy: "Always", containers: []string{job}, before: -1, ends: []int32{0, 0, 0, 0, 0, 0, 0}, want: "velum exited 5 times: velum is not running (exit code 0); rolled back to "},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Policy.ApplyTimeout = 5 * time.Minute
			w.restart()
			first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			if c.before >= 0 {
				w.Node.End(first.Digest, c.before)
			}
			w.Node.PutTemplate("velum.yaml", withPolicy(c.policy, "velum", c.containers...))
			s := w.check()
			require.Equal(t, status.StateCurrent, s.State, s.Reason)
			second := w.publish(1, "1.2")
			w.Node.End(second.Digest, c.ends[0])
			for n, at := range every(20*time.Second, len(c.ends)-1) {
				time.AfterFunc(at, func() { w.Node.End(second.Digest, c.ends[n+1]); w.Node.Sync() })
			}
			out, s := w.apply()
			good := second
			if c.want == "" {
				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				assert.Equal(t, status.ResultApplied, resultOf(s, "velum"))
			} else {
				good = first
				assert.Contains(t, out[0].Reason, c.want)
				assert.Equal(t, status.ResultRolledBack, resultOf(s, "velum"))
			}
			w.runs("velum.yaml", "velum", good.Digest)
			s = w.observe()
			assert.Equal(t, good.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
			assert.Equal(t, c.want == "", s.State == status.StateCurrent, s.Reason)
			w.idle()
		})
	}
}

// A pod that was done before an apply was not stopped by one: while its registry is away it stays as it is.
func TestDonePodStaysWhileItsRegistryIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.End(first.Digest, 0)
		w.Node.PutTemplate("velum.yaml", withPolicy("OnFailure", "velum", "velum="+velum+":__TAG__"))
		w.check()
		w.publish(1, "1.2")
		w.Registry.Down(agenttest.ErrRefused)
		out, _ := w.apply()
		assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// nobodyKnows is an apply.Readiness that can check no container.
type nobodyKnows struct {
	silentKubelet
	why   []string
	asked int
}

func (n *nobodyKnows) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	n.asked++
	return apply.Verdict{Unchecked: n.why}, nil
}

// A release that nobody could check runs, but is not known to be good: the one before stays the rollback target, other
// nodes do not go on, and it is checked again from time to time.
func TestReleaseThatNobodyCouldCheckIsNotKnownToBeGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", probed())
		w.check()
		knows := &nobodyKnows{why: []string{"velum: exec probe"}}
		w.agent.Readiness = knows
		next := first
		for _, build := range []string{"1.2", "1.3"} {
			next = w.publish(1, build)
			out, s := w.apply()
			assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			assert.Equal(t, "running, not checked: velum: exec probe", out[0].Reason)
			assert.Equal(t, status.ErrorUnchecked, out[0].ErrorKind)
			w.runs("velum.yaml", "velum", next.Digest)
			assert.Equal(t, first.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
			assert.Equal(t, next.Digest, s.History[0].Digest)
			assert.Equal(t, status.ErrorUnchecked, s.History[0].Cause)
			assert.True(t, s.HasReason(status.KindUnchecked), s.Reason)
			assert.Contains(t, s.Reason, "velum.yaml: running, not checked: velum: exec probe")
			assert.Equal(t, status.ReleaseStarting, releaseOf(s, next.Digest), "a fleet does not count it")
		}
		asked := knows.asked
		s := w.observe()
		assert.Equal(t, asked, knows.asked)
		assert.True(t, s.HasReason(status.KindUnchecked))
		w.Clock.Add(2 * time.Hour)
		entries := len(s.History)
		s = w.observe()
		assert.Greater(t, knows.asked, asked, "it is checked again")
		assert.Len(t, s.History, entries)
		knows.why = nil
		w.Clock.Add(2 * time.Hour)
		s = w.observe()
		assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
		assert.Equal(t, first.Digest, image(s, "velum.yaml", "velum").Previous.Digest)
		assert.False(t, s.HasReason(status.KindUnchecked), s.Reason)
		assert.Equal(t, status.ReleaseRunning, releaseOf(s, next.Digest))
	})
}

// releaseOf returns the state of a release on the node.
func releaseOf(s status.Status, d digest.Digest) status.ReleaseState {
	for _, r := range s.Releases {
		if r.Digest == d {
			return r.State
		}
	}
	return ""
}

// An automatic apply that is killed while the pod is aside is not a reason to leave the pod broken.
func TestKilledAutomaticApplyIsRolledBack(t *testing.T) {
	t.Parallel()
	for name, byPerson := range map[string]bool{"it goes on": false, "the window has closed, a person applies": true} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:db="+mariadb+":10.0", "velum="+velum+":4.0.0"))
			w.check()
			w.Policy.Auto, w.Policy.Window, w.Policy.ApplyTimeout = true, nightly, 5*time.Minute
			w.at(5)
			w.restart()
			w.Registry.Release(mariadb, "10.0", 1, "1.2") // as an init container, it restarts the pod
			second := w.publish(1, "1.2")
			w.Node.Crash(second.Digest, true)
			w.at(2)
			w.restart()
			ctx, kill := w.killable()
			w.Node.OnAside = func(string) error { w.Node.SetKubelet(false); kill(); return nil }
			_, err := w.agent.Cycle(ctx, source.PollNone)
			require.NoError(t, err)
			w.Node.OnAside = nil
			w.restart()
			w.Node.SetKubelet(true)
			for _, at := range every(20*time.Second, 12) {
				time.AfterFunc(at, w.Node.Sync)
			}
			if byPerson {
				w.at(5)
				out, _ := w.apply()
				assert.Contains(t, out[0].Reason, "rolled back to ")
			}
			s := w.observe()
			w.runs("velum.yaml", "velum", first.Digest)
			assert.Equal(t, status.ResultRolledBack, resultOf(s, "velum"), "%+v", s.History)
		})
	}
}

// kubelet picks a release up by itself, beside a container that was in a crash loop before.
func TestPickedUpReleaseIsJudgedByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ was, crashes bool }{
		"the other was down before":      {was: true},
		"it crashes, too":                {was: true, crashes: true},
		"it takes the other one with it": {},
	} {
		run(t, name, func(t *testing.T) {
			w, first, db := twoContainers(t)
			w.Policy.ApplyTimeout = 5 * time.Minute
			w.restart()
			if c.was {
				w.Node.End(db.Digest, 1)
				w.Node.Restart("velum.yaml", "db")
				w.observe()
			}
			second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
			w.Node.End(db.Digest, 1)
			if c.crashes {
				w.Node.End(second.Digest, 1)
			}
			w.Node.Restart("velum.yaml", "db")
			w.Node.Restart("velum.yaml", "velum")
			for _, at := range every(20*time.Second, 12) {
				time.AfterFunc(at, w.Node.Sync)
			}
			w.check()
			s := w.observe()
			want, result := second, status.ResultPickedUp
			switch {
			case c.crashes:
				want, result = first, status.ResultRolledBack
			case !c.was: // and the release before does not help it
				want, result = first, status.ResultFailed
			}
			w.runs("velum.yaml", "velum", want.Digest)
			assert.Equal(t, want.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
			assert.Equal(t, result, resultOf(s, "velum"), "%+v", s.History)
		})
	}
}

// slowStart is an apply.Readiness of a container that starts after some time.
type slowStart struct {
	silentKubelet
	takes time.Duration
	seen  map[string]time.Time // by the container's id
}

func (s slowStart) Unready(_ context.Context, pod apply.PodReadiness) (v apply.Verdict, _ error) {
	id := pod.Containers[0].ID
	if s.seen[id].IsZero() {
		s.seen[id] = time.Now()
	}
	if time.Since(s.seen[id]) < s.takes {
		v.Unready = "velum has not started: exit code 1"
	}
	return v, nil
}

// applyTimeout does not end a start that the startup probe still allows.
func TestStartupProbeMayTakeLongerThanApplyTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe, want string
		takes       time.Duration
	}{
		"within its budget":   {probe: "failureThreshold: 100", takes: 15 * time.Minute},
		"beyond it":           {probe: "failureThreshold: 100", takes: 20 * time.Minute, want: "not running after 16m41s: velum has not started: exit code 1"},
		"it allows days":      {probe: "failureThreshold: 100000", takes: 2 * time.Hour, want: "not running after 30m0s: velum has not started: exit code 1 (its startup probe allows 277h46m41s)"},
		"a short budget":      {probe: "failureThreshold: 3", takes: 4 * time.Minute},
		"beyond applyTimeout": {probe: "failureThreshold: 3", takes: 8 * time.Minute, want: "not running after 5m0s: velum has not started"},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Policy.ApplyTimeout = 5 * time.Minute
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", []byte(string(podYAML("velum", "velum="+velum+":__TAG__"))+
				"    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 10, "+c.probe+"}\n"))
			w.check()
			w.agent.Readiness = slowStart{takes: c.takes, seen: map[string]time.Time{}}
			w.publish(1, "1.2")
			out, _ := w.apply()
			assert.Contains(t, out[0].Reason, c.want)
			assert.Equal(t, c.want == "", out[0].Result == status.ResultApplied, out[0].Reason)
		})
	}
}
