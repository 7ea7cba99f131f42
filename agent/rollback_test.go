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

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// isPinned asserts that the pod manifest names a digest and needs no registry.
func (w *world) isPinned(long string, d digest.Digest) {
	w.t.Helper()
	text := w.Node.PodManifest("velum.yaml")
	assert.Contains(w.t, text, "image: "+velum+":"+long+"@"+d.String()+"\n")
	assert.Contains(w.t, text, "imagePullPolicy: IfNotPresent\n")
	assert.NotContains(w.t, text, "Always")
}

// bad publishes a release that crashes, and polls.
func (w *world) bad(rev int, build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(velum, "4.0.0", rev, build)
	w.Node.Crash(r.Digest, true)
	w.check()
	return r
}

// rolledBackOnce returns a pod whose update did not come up, and the release that it runs again.
func rolledBackOnce(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.bad(1, "9.9")
	w.apply()
	w.runs("velum.yaml", "velum", first.Digest)
	return w, first
}

func TestFailedApplyIsRolledBack(t *testing.T) {
	for kind, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		for _, from := range []string{"template", "managed"} {
			run(t, kind+" of a "+from, func(t *testing.T) { rolledBack(t, rev, from) })
		}
	}
}

func rolledBack(t *testing.T, rev int, from string) {
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	if from == "template" {
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	} else {
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
	}
	w.check()
	w.bad(rev, "9.9")

	out, s := w.apply()

	assert.Equal(t, status.ResultFailed, out[0].Result)
	assert.Contains(t, out[0].Reason, "exit code 1")
	assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev1-build1.1")
	w.runs("velum.yaml", "velum", first.Digest)
	w.isPinned("4.0.0-rev1-build1.1", first.Digest)
	assert.Equal(t, status.StateFailed, s.State)
	for range 2 {
		i := image(s, "velum.yaml", "velum")
		assert.Nil(t, i.Offered, "it is not offered again")
		require.NotEmpty(t, i.Refused)
		assert.Equal(t, policy.RuleFailed, i.Refused[0].Rule)
		assert.Equal(t, first.Digest, i.LastKnownGood.Digest)
		assert.Contains(t, w.Grain.Last().Reason, "rolled back")
		assert.Equal(t, "failed", w.Grain.Last().State)
		assert.Empty(t, w.Grain.Last().Updates)
		w.observe()
		w.idle()
		w.restart()
		s = w.check()
		assert.Equal(t, status.StateFailed, s.State, "as long as the release is denied: "+s.Reason)
	}
	w.Node.Restart("velum.yaml", "velum") // the registry still has the bad one
	w.Node.Collect()
	w.Node.Restart("velum.yaml", "velum")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.True(t, w.Node.Pinned(velum, first.Digest))

	// A newer release ends the denial and the override.
	next := w.Registry.Release(velum, "4.0.0", rev, "9.10")
	s = w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	for _, d := range w.record().Denied {
		assert.True(t, d.Past, "it stays refused, and is no trouble any more")
	}
	out, s = w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", next.Digest)
	assert.Contains(t, w.Node.PodManifest("velum.yaml"), "imagePullPolicy: Always")
	assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	assert.NotContains(t, w.Disk.JSON(), `"overrides"`)
	w.idle()
}

func TestPersonMayRetryADeniedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		out, _ := w.apply()
		require.Equal(t, status.ResultFailed, out[0].Result)
		out, _ = w.apply()
		assert.Equal(t, status.ResultNothing, out[0].Result, "not without the word")
		w.runs("velum.yaml", "velum", first.Digest)
		w.Node.Crash(bad.Digest, false)

		out, s := w.retry()

		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
		w.idle()
	})
}

func TestPickedUpReleaseIsKnownGoodWhenHealthy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Settle = 30 * time.Second
		w.restart()
		second := w.publish(1, "1.2")
		w.Node.Restart("velum.yaml", "velum")
		began := time.Now()
		s := w.observe()
		assert.Equal(t, 30*time.Second, time.Since(began))
		i := image(s, "velum.yaml", "velum")
		assert.True(t, i.PickedUp)
		assert.Equal(t, second.Digest, i.LastKnownGood.Digest)
		assert.True(t, w.Node.Pinned(velum, first.Digest))
		w.idle()
	})
}

// A pod that the agent does not manage is not written. Its failure is reported once, and it counts as healthy again
// after it has run for a while.
func TestPickedUpReleaseOfAnUnmanagedPodIsOnlyReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		was := rendered("velum", "velum="+velum+":4.0.0-rev1")
		w.Node.PutPodManifest("velum.yaml", was)
		w.check()
		bad := w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		s := w.observe()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "not rolled back: velum.yaml has no template and is not listed under manage")
		assert.Equal(t, string(was), w.Node.PodManifest("velum.yaml"))
		began := time.Now()
		s = w.observe()
		assert.Zero(t, time.Since(began), "it is not verified healthy again and again")
		assert.Equal(t, status.StateFailed, s.State)
		w.Node.Crash(bad.Digest, false)
		w.Node.Sync()
		w.Clock.Add(time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, bad.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
	})
}

func TestPodBrokenBeforeIsNotRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.Crash(first.Digest, true)
		w.Node.Restart("velum.yaml", "velum")
		second := w.bad(1, "1.2")
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Contains(t, out[0].Reason, "velum was not running before either")
		assert.Equal(t, status.ErrorNotUp, out[0].ErrorKind)
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
		assert.Equal(t, status.StateFailed, s.State)
		began := time.Now()
		w.observe()
		assert.Zero(t, time.Since(began), "the health check is not repeated, nor does a later cycle roll it back")
		w.runs("velum.yaml", "velum", second.Digest)
		w.Node.Crash(second.Digest, false)
		w.Node.Sync()
		w.Clock.Add(time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

func TestRollbackByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		out, s := w.rollback()
		assert.Equal(t, status.ResultNothing, out[0].Result)
		assert.Zero(t, s.SchemaVersion)
		second := w.publish(2, "1.2")
		w.apply()
		w.runs("velum.yaml", "velum", second.Digest)
		w.Registry.Down(agenttest.ErrRefused) // a registry may no longer have it
		out, _, err := w.agent.Rollback(t.Context(), plan.Which{})
		require.ErrorIs(t, err, plan.ErrWhich)
		assert.Nil(t, out)
		w.runs("velum.yaml", "velum", second.Digest)
		var heard []status.Progress
		w.agent.Progress = func(p status.Progress) { heard = append(heard, p) }

		out, _ = w.rollback("velum")
		require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		assert.Equal(t, "runs 4.0.0-rev1-build1.1", out[0].Reason)
		edits := []status.Edit{{Container: "velum", Field: "image", From: "4.0.0-rev2-build1.2", To: "4.0.0-rev1-build1.1"}}
		assert.Equal(t, edits, out[0].Edits)
		assert.Equal(t, status.Progress{
			Reference: "velum.yaml", PodManifest: "velum.yaml", Phase: "returning", Edits: edits,
		}, heard[0], "before it begins")
		assert.Equal(t, status.Progress{
			Reference: "velum", PodManifest: "velum.yaml", Phase: "done", Ended: "waiting", Number: 1, Count: 1,
		}, heard[len(heard)-1], "its end")
		w.runs("velum.yaml", "velum", first.Digest)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
		w.Registry.Down(nil)
		s = w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, "nothing to apply; velum.yaml was rolled back to 4.0.0-rev1-build1.1; 4.0.0-rev2-build1.2 is denied "+
			"until apply --retry velum.yaml or a newer release", s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.False(t, image(s, "velum.yaml", "velum").PickedUp)
		back := podOf(s, "velum.yaml").RolledBack
		require.NotNil(t, back, "how to go forward again")
		assert.True(t, back.ByHand)
		assert.Equal(t, []string{"4.0.0-rev2-build1.2"}, back.Denied)
		assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, back.Runs)
		out, _ = w.rollback()
		assert.Equal(t, status.ResultNothing, out[0].Result, "what was rolled back is no rollback target")

		out, s = w.retry()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Nil(t, podOf(s, "velum.yaml").RolledBack)
		assert.NotContains(t, s.Reason, "rolled back")
	})
}

func TestRollbackIsHeldWhileTheNodeIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.publish(2, "1.2")
		w.apply()
		w.Grain.SetBusy("update_in_progress")
		out, _ := w.rollback()
		assert.Equal(t, status.ResultHeld, out[0].Result)
		w.Grain.SetBusy("")
		w.Against = []status.Hold{{Name: "reboot", Reason: "scheduled"}}
		out, _ = w.rollback()
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Equal(t, "reboot: scheduled", out[0].Reason)
		assert.Equal(t, "reboot", out[0].Hold)
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// The registry goes away when the pod is stopped: the pod still comes up.
func TestRegistryLostInTheMiddleOfAnApply(t *testing.T) {
	for kind, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		run(t, kind, func(t *testing.T) {
			w, _ := running(t)
			second := w.publish(rev, "1.2")
			w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
			w.Node.OnAside = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }

			s := w.applies()
			w.runs("velum.yaml", "velum", second.Digest)
			w.isPinned(second.Long, second.Digest)
			assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
			w.Registry.Down(nil)
			s = w.check()
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			w.idle()
			third := w.Registry.Release(velum, "4.0.0", rev, "1.3")
			w.Node.OnStop, w.Node.OnAside = nil, nil
			w.check()
			w.applies()
			w.runs("velum.yaml", "velum", third.Digest)
			assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
		})
	}
}

// A failed pod that the agent does not manage runs a known good release again.
func TestFailureOfAnUnmanagedPodEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
		w.check()
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		s := w.observe()
		assert.Equal(t, status.StateFailed, s.State)
		for _, tag := range []string{"4.0.0", "4.0.0-rev1"} {
			w.Registry.Tag(velum, tag, first.Digest)
		}
		w.Node.Sync()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Clock.Add(time.Hour)
		w.check()
		w.Clock.Add(24 * time.Hour)
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

// One image of a pod is rolled back.
func TestRollbackOfOneImageLeavesTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := twoContainers(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.apply()
		w.rollback("velum")
		w.runs("velum.yaml", "velum", first.Digest)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// kubelet has removed the init container.
func TestRollbackWithARemovedInitContainerChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := withInit(t)
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.observe()
		out, _ := w.rollback()
		assert.Equal(t, status.ResultNothing, out[0].Result, out[0].Reason)
	})
}

// A managed pod is no longer listed.
func TestPodNoLongerManagedIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t) // so that there are templates
		w.Policy.Auto = true
		w.Policy.Manage, w.Policy.ManagedPullPolicy = map[string]bool{"mine.yaml": true}, "Always"
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutPodManifest("mine.yaml", podYAML("mine", "db="+mariadb+":10.0-rev1"))
		w.restart()
		w.check()
		w.observe()
		require.Contains(t, w.Node.PodManifest("mine.yaml"), "Always")
		w.Policy.Manage = nil
		w.restart()
		s := w.observe()
		assert.Empty(t, podOf(s, "mine.yaml").Change)
		assert.NotEmpty(t, w.Node.PodManifest("mine.yaml"))
	})
}

type readyAll struct {
	silentKubelet
}

func (readyAll) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	return apply.Verdict{}, nil
}

// The template has a container with a probe that the running pod does not have.
func TestHealthCheckUsesTheProbesOfTheRunningPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.agent.Readiness = readyAll{}
		text := string(podYAML("velum", "velum="+velum+":__TAG__", "more="+mariadb+":10.0"))
		text += "    readinessProbe: {tcpSocket: {port: 80}}\n"
		w.Node.PutTemplate("velum.yaml", []byte(text))
		w.check()
		second := w.publish(1, "1.2")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

type onceUnwritten struct {
	node.PodFiles
	n   *int
	now int
}

func (o onceUnwritten) PutBack(ctx context.Context) ([]string, error) {
	if *o.n++; *o.n == o.now {
		return nil, errors.New("read-only file system")
	}
	return o.PodFiles.PutBack(ctx)
}

// Putting the pod manifest back fails once.
func TestFailedPutBackIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "9.9")
		n := 0
		w.agent.Files = onceUnwritten{w.Node, &n, 2}
		w.Node.OnAside = func(string) error { return errors.New("cannot") }
		_, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		w.Node.OnAside = nil
		assert.Contains(t, w.Disk.JSON(), `"good"`)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The image has no tag.
func TestImageWithoutTagIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		first := w.Registry.Publish(velum, "latest")
		w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum))
		w.check()
		w.apply()
		w.observe()
		bad := w.Registry.Publish(velum, "latest")
		w.Node.Crash(bad.Digest, true)
		w.check()
		_, s := w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, podOf(s, "velum.yaml").Error, "pod manifest:")
		w.restart()
		s = w.observe()
		assert.Empty(t, podOf(s, "velum.yaml").Error)
	})
}

// The policy has updates: none.
func TestUpdatesNoneKeepsTheRollbackTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.obey(policy.Rule{Updates: tags.Same})
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Registry.Release(velum, "4.0.0", 1, "9.10")
		s := w.check()
		assert.Empty(t, podOf(s, "velum.yaml").Change)
	})
}

// A tag is moved to an older build and forward again.
func TestDenialOutlivesATagThatIsMovedBackAndForth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		for _, d := range []digest.Digest{first.Digest, bad.Digest} {
			for _, tag := range []string{"4.0.0", "4.0.0-rev1"} {
				w.Registry.Tag(velum, tag, d)
			}
			s := w.check()
			assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		}
	})
}

type afterSave struct {
	record.Recorder
	do func()
}

func (a *afterSave) Save(ctx context.Context, r record.Record) error {
	err := a.Recorder.Save(ctx, r)
	if a.do != nil {
		a.do()
	}
	return err
}

// A container crashes right after the health check, with another digest.
func TestContainerStartedAfterTheHealthCheckIsNotHealthy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.publish(1, "1.2")
		rec := &afterSave{Recorder: w.Disk}
		w.agent.Recorder = rec
		saves := 0
		rec.do = func() {
			if saves++; saves == 2 {
				third := w.Registry.Release(velum, "4.0.0", 1, "1.3")
				w.Node.Crash(third.Digest, true)
				w.Node.Restart("velum.yaml", "velum")
			}
		}
		_, s := w.apply()
		assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest)
	})
}

// The apply of one container does not count as the health check of a release that kubelet picked up for another.
func TestApplyOfOneContainerDoesNotVerifyTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.onFirstStop(func() { // after the plan, kubelet pulls it without the agent
			w.Node.Crash(bad.Digest, true)
			w.Node.Restart("velum.yaml", "db")
		})
		w.apply("velum")
		s := w.observe()
		assert.Equal(t, db.Digest, image(s, "velum.yaml", "db").LastKnownGood.Digest)
	})
}

// With IfNotPresent a pod needs no rescue.
func TestSlowKubeletWithIfNotPresentIsNotRescued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.PullPolicy = "IfNotPresent"
		w.restart()
		w.check()
		w.apply()
		w.publish(1, "1.2")
		w.Node.OnStop = func(string) error {
			w.Registry.Down(agenttest.ErrRefused)
			w.Node.SetKubelet(false)
			time.AfterFunc(5*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			return nil
		}
		w.applies()
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// The requests while a pod does not start.
func TestRescueAsksWithGrowingPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.ApplyTimeout = 5 * time.Minute
		w.restart()
		w.publish(1, "1.2")
		w.Registry.Counts()
		w.Node.SetKubelet(false)
		w.apply()
		assert.LessOrEqual(t, w.Registry.Counts().Heads, 20)
	})
}

// A pod that the agent does not manage crashes now and then.
func TestFlappingUnmanagedPodDoesNotBlockTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ApplyTimeout, w.Policy.Settle = 5*time.Minute, 30*time.Second
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.Now = func() time.Time { return time.Now() }
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
		a := w.Agent()
		a.Now = time.Now
		w.agent = a
		w.check()
		w.publish(1, "1.2")
		ctx, stop := w.killable()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				timer := time.NewTimer(31 * time.Second)
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
					w.Node.Restart("velum.yaml", "velum")
					n := time.NewTimer(15 * time.Second)
					select {
					case <-ctx.Done():
						return
					case <-n.C:
					}
					w.Node.Restart("velum.yaml", "velum")
				}
			}
		}()
		var total time.Duration
		for range 12 {
			timer := time.NewTimer(10 * time.Minute)
			<-timer.C
			began := time.Now()
			w.observe()
			total += time.Since(began)
		}
		stop()
		<-done
		assert.Less(t, total, 15*time.Minute)
	})
}

// rolledBackAbove is a pod whose old manifest a person restored by mistake and which was rolled back to its earlier
// release, above the tag that the pod manifest follows.
func rolledBackAbove(t *testing.T) (*world, digest.Digest) {
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.brings("4.0.0-rev1")
	w.check()
	old := []byte(w.Node.PodManifest("velum.yaml"))
	third := w.publish(3, "1.3")
	w.apply()
	w.runs("velum.yaml", "velum", third.Digest)
	w.Node.PutPodManifest("velum.yaml", old)
	w.observe()
	out, _ := w.rollback()
	require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
	w.runs("velum.yaml", "velum", third.Digest)
	return w, third.Digest
}

// The running release is withdrawn, and another one is newer than the followed tag but older than the running release.
func TestNoLowerReleaseIsOfferedAfterARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, third := rolledBackAbove(t)
		w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.Registry.Retract(velum, "4.0.0-rev3")
		w.Registry.Retract(velum, "4.0.0-rev3-build1.3")
		i := image(w.check(), "velum.yaml", "velum")
		assert.Nil(t, i.Offered)
		assert.Empty(t, i.Change)
		assert.Contains(t, i.Refused, policy.Refusal{
			Tag: "4.0.0-rev2-build1.2", Rule: policy.RuleOlder, Reason: "4.0.0-rev3-build1.3 is running and is newer", Key: "older: true", Holds: true,
		})
		w.apply()
		w.runs("velum.yaml", "velum", third)

		next := w.publish(4, "1.4")
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

// After a kill between the write and kubelet's start nothing runs at the next start: the apply is the cause.
func TestKillBeforeTheStartStillRollsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "2.1")
		ctx, kill := w.killable()
		w.Node.SetKubelet(false)
		w.agent.Progress = func(p status.Progress) {
			if p.Phase == "waiting" {
				w.Node.EndPod("velum.yaml")
				kill()
			}
		}
		_, _, _ = w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		w.restart()
		time.AfterFunc(time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
		w.observe()
		assert.Contains(t, w.Disk.JSON(), `"denied"`)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The record was lost. Mode auto waits for a person, and what runs meanwhile is the rollback target then.
func TestLostRecordLearnsARollbackTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.Node.Crash(bad.Digest, true)
		w.Disk.Lose()
		w.Policy.Auto = true
		w.restart()
		assert.Equal(t, status.HoldRecord, w.check().Reasons[0].Hold)
		w.resume()
		s := w.check()
		assert.Contains(t, s.Reason, "rolled back to "+first.Long)
		assert.Contains(t, w.record().Denied, release.Key(velum, bad.Digest))
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The status names the release that a rollback returns to.
func TestPreviousIsTheRollbackTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		s := w.observe()
		assert.Nil(t, image(s, "velum.yaml", "velum").Previous)
		assert.False(t, podOf(s, "velum.yaml").CanRollBack, "nothing ran before")
		w.publish(1, "1.2")
		_, s = w.apply()
		assert.Equal(t, &status.Named{Tag: "4.0.0-rev1-build1.1", Digest: first.Digest}, image(s, "velum.yaml", "velum").Previous)
		assert.True(t, podOf(s, "velum.yaml").CanRollBack)
		out, s := w.rollback("velum")
		assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Nil(t, image(s, "velum.yaml", "velum").Previous, "the other one is denied")
		assert.False(t, podOf(s, "velum.yaml").CanRollBack)
		out, _ = w.rollback("velum")
		assert.Equal(t, status.ResultNothing, out[0].Result)
	})
}

// The record is lost while a pod manifest pins the rollback target: the newer build is offered, and it has a rollback
// target.
func TestPinnedPodIsOfferedANewerBuildWithoutItsRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		pinned := w.Node.PodManifest("velum.yaml")
		require.Contains(t, pinned, "@"+first.Digest.String())
		w.Disk.Lose()
		w.restart()
		s := w.check()
		i := image(s, "velum.yaml", "velum")
		assert.Equal(t, "rebuild", i.Change)
		require.NotNil(t, i.Offered)
		assert.Equal(t, bad.Digest, i.Offered.Digest)
		assert.Contains(t, strings.Join(i.Notes, " "), "named by its digest, until a newer release is applied: the record does not say why")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev1-build1.1")
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, pinned, w.Node.PodManifest("velum.yaml"))
	})
}

// The tag names no newer release: nothing is offered, and the digest stays.
func TestDigestWrittenByAPersonIsNotAConversion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		text := strings.ReplaceAll(w.Node.PodManifest("velum.yaml"), "4.0.0-rev1", "4.0.0-rev1-build1.1@"+first.Digest.String())
		w.Node.PutPodManifest("velum.yaml", []byte(strings.ReplaceAll(text, "Always", "IfNotPresent")))
		s := w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, podOf(s, "velum.yaml").Change)
		w.idle()
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		assert.Equal(t, "rebuild", image(w.check(), "velum.yaml", "velum").Change)
		w.applies()
		w.runs("velum.yaml", "velum", next.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.0-rev1\n")
	})
}

// A digest in the template itself follows no tag, and a rollback keeps it.
func TestDigestOfATemplateIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0-rev1@"+db.Digest.String()))
		w.Node.Hold(mariadb+"@"+db.Digest.String(), db.Digest)
		w.check()
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.bad(1, "9.9")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), mariadb+":10.0-rev1@"+db.Digest.String())
		w.runs("velum.yaml", "db", db.Digest)
	})
}

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
		"a hold on all":       {meets: func(w *world) { w.hold(record.PersonHold{}) }, ends: func(w *world) { w.resume() }},
		"a hold on the image": {meets: func(w *world) { w.hold(record.PersonHold{}, "velum") }, ends: func(w *world) { w.resume() }},
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

// resume removes all holds.
func (w *world) resume() status.Status {
	w.t.Helper()
	_, s, err := w.agent.Resume(w.t.Context(), nil, true)
	require.NoError(w.t, err)
	return s
}
