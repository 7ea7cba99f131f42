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
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// twoContainers is a pod of velum and db that runs.
func twoContainers(t *testing.T) (w *world, first, db release.Release) {
	t.Helper()
	w = newWorld(t)
	first = w.Registry.Release(velum, "4.0.0", 1, "1.1")
	db = w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	return w, first, db
}

// The registry goes away while one of two containers is rebuilt.
func TestRescueLeavesTheOtherContainerRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", second.Digest)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// A pod that was broken before is not rolled back a cycle later either.
func TestBrokenBeforeStaysInTheNextCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.Crash(first.Digest, true)
		w.Node.Restart("velum.yaml", "velum")
		second := w.bad(1, "1.2")
		out, _ := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		began := time.Now()
		w.observe()
		assert.Zero(t, time.Since(began), "the proof is not repeated")
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// A person edits the file while the apply is proved.
func TestEditDuringProofIsNotOverwritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 10 * time.Second
		w.restart()
		second := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.check()
		mine := podYAML("velum", "velum="+mariadb+":10.0-rev1")
		time.AfterFunc(5*time.Second, func() { w.Node.PutPodManifest("velum.yaml", mine) })
		out, _ := w.apply()
		t.Log(out)
		assert.Equal(t, string(mine), w.Node.PodManifest("velum.yaml"))
		assert.NotContains(t, w.Disk.JSON(), second.Digest.String()+`":{"at"`)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// The tag moves between preflight and start.
func TestTagMovesBetweenPreflightAndStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		var third release.Release
		w.Node.OnStop = func(string) error {
			w.Node.OnStop = nil
			third = w.Registry.Release(velum, "4.0.0", 1, "1.3")
			return nil
		}
		began := time.Now()
		out, s := w.apply()
		t.Log(out, time.Since(began))

		w.runs("velum.yaml", "velum", third.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`, "what never ran is not denied: "+s.Reason)
	})
}

// A place of a partial override that has moved on.
func TestPartialOverrideDoesNotBringBackAnOlderRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, db := twoContainers(t)
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.check()
		w.apply()
		w.runs("velum.yaml", "db", db.Digest)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		for _, tag := range []string{"4.0.0", "4.0.0-rev1"} {
			w.Registry.Tag(velum, tag, first.Digest)
		}
		s := w.check()
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered, "a tag that was moved to an older build changes nothing")
		w.idle()
	})
}

// Two pods of one image.
func TestFailedReleaseIsNotAppliedToTheNextPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.PutTemplate("zelum.yaml", podYAML("zelum", "velum="+velum+":4.0.0"))
		w.check()
		before := w.Node.Starts("zelum.yaml", "velum")
		w.bad(1, "9.9")
		out, _ := w.apply()
		t.Log(out)
		assert.Equal(t, before, w.Node.Starts("zelum.yaml", "velum"), "the second pod is not stopped for what has just failed")
		w.runs("zelum.yaml", "velum", first.Digest)
	})
}

type pulls struct {
	node.Pods
	err error
}

func (p pulls) Pull(context.Context, release.Reference) (digest.Digest, error) { return "", p.err }

// CRI's pull before anything was stopped.
func TestFailedPullBeforeTheStopDeniesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.PullPolicy = "IfNotPresent"
		w.restart()
		w.check()
		w.apply()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		starts := w.Node.Starts("velum.yaml", "velum")
		w.agent.Pods = pulls{w.Node, errors.New("deadline exceeded")}
		out, _ := w.apply()
		t.Log(out)
		assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"), "nothing was restarted")
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
		assert.NotContains(t, w.Disk.JSON(), `"overrides"`)
	})
}

// The record's disk is full for a moment.
func TestUnsavedRecordDuringAnApplyDeniesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		w.Node.OnAside = func(string) error { w.Disk.Fail(errors.New("no space left on device")); return nil }
		_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		t.Log(err)
		w.Disk.Fail(nil)
		w.Node.OnAside = nil
		w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// containerd does not answer during the whole proof.
func TestUnobservableApplyIsNotAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error { w.Node.Blind(errors.New("containerd is down")); return nil }
		out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		t.Log(out, err)
		w.Node.OnStop = nil
		w.Node.Blind(nil)
		w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// Killed in the middle of a rescue.
func TestKilledInARescue(t *testing.T) {
	for _, rev := range []int{1, 2} {
		t.Run("", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				second := w.Registry.Release(velum, "4.0.0", rev, "1.2")
				w.check()
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				asides := 0
				w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
				w.Node.OnAside = func(string) error {
					asides++
					w.Registry.Down(agenttest.ErrRefused)
					if asides == rev {
						kill()
					}
					return nil
				}
				_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
				require.NoError(t, err)
				assert.Empty(t, w.Node.Aside())
				w.Node.OnStop, w.Node.OnAside = nil, nil
				w.restart()
				w.observe()
				w.observe()
				w.runs("velum.yaml", "velum", second.Digest)
				w.Registry.Down(nil)
				w.Node.Sync()
				s := w.check()
				w.runs("velum.yaml", "velum", second.Digest)
				assert.Equal(t, status.StateCurrent, s.State, s.Reason)
				w.idle()
			})
		})
	}
}

// The rescue's own act fails, and the registry comes back.
func TestFailedRescueLeavesNoOffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
		w.Node.OnAside = func(string) error { w.Registry.Down(nil); return errors.New("read-only file system") }
		out, s := w.apply()
		t.Log(out)
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, podOf(s, "velum.yaml").Change)
	})
}

// The rollback target is lost for good; a newer release helps.
func TestEndlessPendingRollbackTakesANewerRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Lose(first.Digest); return nil }
		w.Registry.Vanish(velum, first.Digest)
		w.apply()
		next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
		s := w.check()
		t.Log(s.State, s.Reason)
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "a newer release is offered")
		out, _ := w.apply()
		t.Log(out)
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

func TestPendingRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Node.Lose(first.Digest); return nil }
		w.Registry.Vanish(velum, first.Digest)
		w.apply()
		w.Node.Crash(bad.Digest, false)
		w.Node.Sync()
		out, s := w.retry()
		t.Log(out, s.State, s.Reason)
		assert.NotContains(t, w.Disk.JSON(), `"overrides"`)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

func TestPendingRollbackKeepsAnEdit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := rollbackPending(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		mine := podYAML("velum", "velum="+mariadb+":10.0-rev1")
		w.Node.PutPodManifest("velum.yaml", mine)
		w.Node.OnStage = nil
		w.observe()
		assert.Equal(t, string(mine), w.Node.PodManifest("velum.yaml"))
	})
}

// Busy in the middle.
func TestFailureOnABusyNodeIsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(1, "9.9")
		w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Grain.SetBusy("update_in_progress"); return nil }
		out, s := w.apply()
		t.Log(out)
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Equal(t, status.StateFailed, s.State, s.Reason)
	})
}
