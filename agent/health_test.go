// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
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
