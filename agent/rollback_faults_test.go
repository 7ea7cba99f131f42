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

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// A foreign pod that failed runs what is good again.
func TestFailureOfAForeignPodEnds(t *testing.T) {
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

// Rollback of one image of a pod.
func TestRollbackOfOneImageLeavesTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := twoContainers(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.apply()
		out, _, err := w.agent.Rollback(t.Context(), plan.Named("velum"))
		require.NoError(t, err)
		t.Log(out)
		w.runs("velum.yaml", "velum", first.Digest)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// Init container removed by kubelet.
func TestRollbackWithARemovedInitContainerChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.observe()
		out, _, err := w.agent.Rollback(t.Context(), plan.All())
		require.NoError(t, err)
		assert.Equal(t, status.ResultNothing, out[0].Result, out[0].Reason)
	})
}

// An approval that could not be kept.
func TestUnsavedApprovalDoesNotApplyLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.poll()
		w.Disk.Fail(errors.New("no space left on device"))
		_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		require.Error(t, err)
		w.Disk.Fail(nil)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// A managed pod that is listed no more.
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

// The template has a container with a probe that the pod that runs has not.
func TestProofUsesTheProbesOfTheRunningPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.agent.Readiness = readyAll{}
		text := string(podYAML("velum", "velum="+velum+":__TAG__", "more="+mariadb+":10.0"))
		text += "    readinessProbe: {tcpSocket: {port: 80}}\n"
		w.Node.PutTemplate("velum.yaml", []byte(text))
		w.check()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.Restart("velum.yaml", "velum")
		s := w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		t.Log(s.State, s.Reason)
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

// Putting back fails once.
func TestFailedPutBackIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "9.9")
		n := 0
		w.agent.Files = onceUnwritten{w.Node, &n, 2}
		w.Node.OnAside = func(string) error { return errors.New("cannot") }
		out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		t.Log(out, err)
		w.Node.OnAside = nil
		assert.Contains(t, w.Disk.JSON(), `"good"`)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// An image without a tag.
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
		s := w.check()
		t.Log(s.State, s.Reason, w.Node.PodManifest("velum.yaml"))
		out, s := w.apply()
		t.Log(out, s.State, s.Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		t.Log(w.Node.PodManifest("velum.yaml"))
		assert.NotContains(t, podOf(s, "velum.yaml").Error, "pod manifest:")
		w.restart()
		s = w.observe()
		assert.Empty(t, podOf(s, "velum.yaml").Error)
	})
}

// Updates none.
func TestUpdatesNoneKeepsTheRollbackTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Same} }
		w.restart()
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Registry.Release(velum, "4.0.0", 1, "9.10")
		s := w.check()
		assert.Empty(t, podOf(s, "velum.yaml").Change)
		t.Log(s.State, s.Reason)
	})
}

// A tag that is moved to an older build and forward again.
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
			t.Log(s.State, s.Reason)
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

// Falls right after the proof, on another digest.
func TestContainerStartedAfterTheProofIsNotProved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
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
		assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastGood.Digest)
	})
}

// Another container's adoption is not proved by the first one's apply.
func TestApplyOfOneContainerDoesNotProveTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error { // after the plan, kubelet takes it by itself
			w.Node.OnStop = nil
			w.Node.Crash(bad.Digest, true)
			w.Node.Restart("velum.yaml", "db")
			return nil
		}
		w.apply("velum")
		s := w.observe()
		assert.Equal(t, db.Digest, image(s, "velum.yaml", "db").LastGood.Digest)
	})
}

// IfNotPresent needs no rescue.
func TestSlowKubeletWithIfNotPresentIsNotRescued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.PullPolicy = "IfNotPresent"
		w.restart()
		w.check()
		w.apply()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error {
			w.Registry.Down(agenttest.ErrRefused)
			w.Node.SetKubelet(false)
			time.AfterFunc(5*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			return nil
		}
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// Requests while a pod does not start.
func TestRescueAsksWithGrowingPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.ApplyTimeout = 5 * time.Minute
		w.restart()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Registry.Counts()
		w.Node.SetKubelet(false)
		w.apply()
		assert.LessOrEqual(t, w.Registry.Counts().Heads, 20)
	})
}

// Adopted after a graceful stop.
func TestInterruptedAfterTheStartIsNotAdopted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 10 * time.Second
		w.restart()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		time.AfterFunc(5*time.Second, kill)
		_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		require.NoError(t, err)
		w.restart()
		s := w.observe()
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
	})
}

// Flapping foreign pod.
func TestFlappingForeignPodDoesNotBlockTheLoop(t *testing.T) {
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
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
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
		t.Log(total)
		assert.Less(t, total, 15*time.Minute)
	})
}
