// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestApplyIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(w *world)
		reason string
		state  status.State
	}{
		"the registry is away": {
			func(w *world) { w.Registry.Down(agenttest.ErrRefused) }, "registry does not answer", status.StateHeld,
		},
		"the floating tag has moved": {
			func(w *world) { w.Registry.Release(velum, "4.0.0", 1, "1.3") }, "has moved", status.StateStaged, // the new release needs its own approval
		},
		"the file is edited at the last moment": {
			func(w *world) {
				w.Registry.OnAsk = func(string, string) {
					w.Registry.OnAsk = nil
					w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1", "more="+mariadb+":10.0"))
				}
			}, "changed by another program or a person", status.StateHeld,
		},
	} {
		parallel(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			old := podYAML("velum", "velum="+velum+":4.0.0")
			w.Node.PutPodManifest("velum.yaml", old)
			w.Node.PutTemplate("velum.yaml", old)
			w.check()
			c.breaks(w)

			out, s := w.apply()

			assert.Equal(t, status.ResultHeld, out[0].Result)
			assert.Contains(t, out[0].Reason, c.reason)
			assert.Equal(t, c.state, s.State, s.Reason)
			assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "imagePullPolicy")
			w.runs("velum.yaml", "velum", first.Digest)
			assert.NotContains(t, w.Disk.JSON(), `"approved"`, "the approval is used up")
			assert.NotContains(t, w.Disk.JSON(), `"failed"`, "nothing went wrong")
		})
	}
}

// A held apply uses up its approval. The status says why the apply was held until a source answers: also in later
// cycles, and after a restart.
func TestStatusRemembersAHeldApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.publish(2, "1.2")
		w.Registry.Down(agenttest.ErrRefused)
		out, _ := w.apply()
		require.Equal(t, status.ResultHeld, out[0].Result)
		w.Clock.Add(time.Minute)

		w.observe()
		w.restart()
		s := w.observe()

		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		require.Len(t, s.Reasons, 1)
		at := s.Reasons[0]
		assert.Equal(t, status.KindApproval, at.Kind)
		assert.Equal(t, status.ErrorSource, at.ErrorKind)
		assert.Equal(t, w.Clock.Now().Add(-time.Minute).UTC(), at.Since)
		assert.Contains(t, at.Held, "registry does not answer: ")
		assert.Contains(t, s.Reason, "waiting for approval: velum.yaml (revision; the apply of "+at.Since.Format(time.RFC3339)+
			" was held: registry does not answer: ")

		s = w.check()
		assert.Equal(t, status.StateStale, s.State, "the source says so itself")
		assert.Contains(t, s.Reason, "was held: registry does not answer: ")
		w.Registry.Down(nil)
		w.Clock.Add(time.Hour)
		s = w.check()
		assert.Equal(t, "waiting for approval: velum.yaml (revision)", s.Reason, "it answers again")
		assert.NotContains(t, w.Disk.JSON(), `"heldBack"`)
	})
}

// Besides an answer, an apply and another offer end the report of a held apply.
func TestHeldApplyIsForgotten(t *testing.T) {
	for name, ends := range map[string]func(w *world){
		"applied": func(w *world) {
			out, _ := w.apply()
			require.Equal(w.t, status.ResultApplied, out[0].Result)
		},
		"nothing is offered": func(w *world) {
			w.obey(policy.Rule{Updates: tags.Rebuild})
			w.observe()
		},
		"the pod manifest is gone": func(w *world) {
			w.Node.PutTemplate("velum.yaml", nil)
			w.Node.PutPodManifest("velum.yaml", nil)
			w.observe()
		},
	} {
		run(t, name, func(t *testing.T) {
			w, _ := running(t)
			w.publish(2, "1.2")
			w.Registry.Down(agenttest.ErrRefused)
			w.apply()
			require.Contains(t, w.Disk.JSON(), `"heldBack"`)
			w.Registry.Down(nil)
			ends(w)
			assert.NotContains(t, w.Disk.JSON(), `"heldBack"`)
		})
	}
}

func TestApplyOfUnknownPodFails(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	assert.Equal(t, []status.Outcome{{PodManifest: "velum.yaml", Result: status.ResultNothing}}, out)
	_, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("elum")})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
	for _, name := range []string{"velum", velum, "v4/velum", "velum.yaml"} {
		_, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named(name)})
		require.NoError(t, err, name)
	}
}

func TestApplyNeedsASavedApproval(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	w.Disk.Fail(errors.New("no space left on device"))

	_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})

	require.ErrorContains(t, err, "no space left")
	w.Disk.Fail(nil)
	w.observe()
	w.runs("velum.yaml", "velum", first.Digest)
}

func TestLastKnownGoodStaysPinnedWhileRebuildsCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		for _, build := range []string{"1.2", "1.3", "1.4"} {
			bad := w.Registry.Release(velum, "4.0.0", 1, build)
			w.Node.Crash(bad.Digest, true)
			w.poll()
			w.Node.Restart("velum.yaml", "velum") // kubelet pulls it without the agent
			w.observe()
			w.Node.Collect()
		}
		assert.True(t, w.Node.Pinned(velum, first.Digest))
	})
}

func TestIfNotPresentPullsThroughCRIFirst(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.PullPolicy = "IfNotPresent"
	w.restart()
	w.check()
	w.applies()
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	assert.NotContains(t, w.Node.Names(second.Digest), velum+":4.0.0-rev1", "staging leaves the floating tag alone")

	w.applies()
	w.runs("velum.yaml", "velum", second.Digest)
	assert.Contains(t, w.Node.Names(second.Digest), velum+":4.0.0-rev1")
}

func TestTwoContainersOfOneRepositoryAreStagedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0", "b="+velum+":4.0.0", "init:c="+velum+":4.0.0"))
	w.check()
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Registry.Counts()

	s := w.poll()

	assert.Equal(t, 1, w.Registry.Counts().Describes)
	assert.Len(t, s.Images, 3)
	assert.Len(t, w.Grain.Last().Updates, 1, "the UI hears of an image once")
	w.applies("velum")
	for _, c := range []string{"a", "b", "c"} {
		w.runs("velum.yaml", c, second.Digest)
	}
}

func TestStepErrorsAreReportedAtTheirObject(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.OnStage = func(context.Context, release.Release) error { return errors.New("no space left on device") }

	s := w.poll()

	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, image(s, "velum.yaml", "velum").Error, "no space left")
	assert.False(t, image(s, "velum.yaml", "velum").Staged)
	assert.Empty(t, w.Grain.Last().Updates, "never offered unstaged")
	out, _ := w.apply()
	assert.Equal(t, "not staged yet: stage: no space left on device", out[0].Reason)
}

// kubelet's garbage collection removed the staged image, and no cycle has noticed: one apply request is enough.
func TestLostReleaseIsStagedAgainBeforeAnApply(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	require.Equal(t, status.StateStaged, w.check().State)
	w.Node.Lose(next.Digest)
	out, s := w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", next.Digest)

	last := w.Registry.Release(velum, "4.0.0", 1, "1.3")
	require.Equal(t, status.StateStaged, w.check().State)
	w.Node.Lose(last.Digest)
	tried := 0
	w.Node.OnStage = func(context.Context, release.Release) error { tried++; return errors.New("no route to host") }
	out, s = w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Equal(t, "not staged yet: stage: no route to host", out[0].Reason)
	assert.Equal(t, 1, tried)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "no route to host")
	w.runs("velum.yaml", "velum", next.Digest)
}

// twoContainers returns a node with a running pod of velum and mariadb.
func twoContainers(t *testing.T) (w *world, first, db release.Release) {
	t.Helper()
	return velumAndDB(t, "velum="+velum+":4.0.0")
}

// withInit is twoContainers, with velum as an init container.
func withInit(t *testing.T) (w *world, first, db release.Release) {
	t.Helper()
	return velumAndDB(t, "init:setup="+velum+":4.0.0")
}

func velumAndDB(t *testing.T, container string) (w *world, first, db release.Release) {
	t.Helper()
	w = newWorld(t)
	first = w.Registry.Release(velum, "4.0.0", 1, "1.1")
	db = w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", container, "db="+mariadb+":10.0"))
	w.check()
	return w, first, db
}

// badDB publishes a rebuild of mariadb that crashes, and polls.
func (w *world) badDB(build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(mariadb, "10.0", 1, build)
	w.Node.Crash(r.Digest, true)
	w.check()
	return r
}

// One after the other, the grace periods of the containers would add up.
func TestContainersOfAPodAreStoppedTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := twoContainers(t)
		second := w.publish(1, "1.2")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		var both sync.WaitGroup
		both.Add(2)
		w.Node.OnStop = func(string) error { both.Done(); both.Wait(); return nil }
		w.applies()
		w.runs("velum.yaml", "velum", second.Digest)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// The registry goes away while one of two containers is being rebuilt.
func TestRescueLeavesTheOtherContainerRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		second := w.publish(1, "1.2")
		w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
		w.applies()
		w.runs("velum.yaml", "velum", second.Digest)
		w.runs("velum.yaml", "db", db.Digest)
	})
}

// A person edits the file during the health check of an apply.
func TestEditDuringHealthCheckIsNotOverwritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 10 * time.Second
		w.restart()
		second := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.check()
		mine := podYAML("velum", "velum="+mariadb+":10.0-rev1")
		time.AfterFunc(5*time.Second, func() { w.Node.PutPodManifest("velum.yaml", mine) })
		w.apply()
		assert.Equal(t, string(mine), w.Node.PodManifest("velum.yaml"))
		assert.NotContains(t, w.Disk.JSON(), second.Digest.String()+`":{"at"`)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// One image of a partial override has moved to a newer release.
func TestPartialOverrideDoesNotBringBackAnOlderRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, db := twoContainers(t)
		w.badDB("1.2")
		w.apply()
		w.runs("velum.yaml", "db", db.Digest)
		next := w.publish(1, "1.2")
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

// Two pods run the same image.
func TestFailedReleaseIsNotAppliedToTheNextPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.PutTemplate("zelum.yaml", podYAML("zelum", "velum="+velum+":4.0.0"))
		w.check()
		before := w.Node.Starts("zelum.yaml", "velum")
		w.bad(1, "9.9")
		out, _ := w.apply()
		assert.Equal(t, before, w.Node.Starts("zelum.yaml", "velum"), "the second pod is not stopped for what has just failed")
		require.Len(t, out, 2)
		assert.Contains(t, out[1].Reason, "9.9 did not become healthy within velum.yaml", "its answer names the first")
		w.runs("zelum.yaml", "velum", first.Digest)
	})
}

type pulls struct {
	node.Pods
	err error
}

func (p pulls) Pull(context.Context, release.Reference) (digest.Digest, error) { return "", p.err }

// The pull through CRI fails before anything was stopped.
func TestFailedPullBeforeTheStopCausesNoDenial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.PullPolicy = "IfNotPresent"
		w.restart()
		w.check()
		w.apply()
		w.publish(1, "1.2")
		starts := w.Node.Starts("velum.yaml", "velum")
		w.agent.Pods = pulls{w.Node, errors.New("deadline exceeded")}
		w.apply()
		assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"), "nothing was restarted")
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
		assert.NotContains(t, w.Disk.JSON(), `"overrides"`)
	})
}

// The disk of the record is full for a moment.
func TestUnsavedRecordDuringAnApplyCausesNoDenial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.publish(2, "1.2")
		w.Node.OnAside = func(string) error { w.Disk.Fail(errors.New("no space left on device")); return nil }
		_, _, _ = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		w.Disk.Fail(nil)
		w.Node.OnAside = nil
		w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.NotContains(t, w.Disk.JSON(), `"denied"`)
	})
}

// The agent is killed in the middle of a rescue.
func TestKilledInARescue(t *testing.T) {
	for _, rev := range []int{1, 2} {
		run(t, "", func(t *testing.T) {
			w, _ := running(t)
			second := w.publish(rev, "1.2")
			ctx, kill := w.killable()
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
			w.applyWith(ctx)
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
	}
}

// The rescue itself fails, and the registry comes back.
func TestFailedRescueLeavesNoOffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.publish(1, "1.2")
		w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
		w.Node.OnAside = func(string) error { w.Registry.Down(nil); return errors.New("read-only file system") }
		_, s := w.apply()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, podOf(s, "velum.yaml").Change)
	})
}

// The rollback target is lost; a newer release replaces it.
func TestPendingRollbackMovesToANewerRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		w.onFirstStop(func() { w.Node.Lose(first.Digest) })
		w.Registry.Vanish(velum, first.Digest)
		w.apply()
		next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
		s := w.check()
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "a newer release is offered")
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

func TestPendingRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.onFirstStop(func() { w.Node.Lose(first.Digest) })
		w.Registry.Vanish(velum, first.Digest)
		w.apply()
		w.Node.Crash(bad.Digest, false)
		w.Node.Sync()
		_, s := w.retry()
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

// Another operation makes the node busy during the apply.
func TestFailureOnABusyNodeIsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(1, "9.9")
		w.onFirstStop(func() { w.Grain.SetBusy("update_in_progress") })
		out, s := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result)
		assert.Equal(t, status.StateFailed, s.State, s.Reason)
	})
}

// update publishes a rebuild of velum, stages and applies it.
func (w *world) update(build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(velum, "4.0.0", 1, build)
	require.Equal(w.t, status.StateStaged, w.check().State)
	out, s := w.apply("velum")
	require.Equal(w.t, status.ResultApplied, out[0].Result, s.Reason)
	w.Node.Forget() // kubelet removes the dead containers of a former pod
	w.observe()     // releases what the applied pod needed
	return r
}

func (w *world) there(r release.Release) bool {
	return slices.Contains(w.Node.Names(r.Digest), r.StagedName())
}

func TestOldReleasesArePrunedAfterTheHealthCheck(t *testing.T) {
	t.Parallel()
	for keep, stay := range map[int][]bool{0: {false, false, false}, 1: {false, false, true}, 2: {false, true, true}} {
		w, first := running(t)
		w.Policy.Prune.Keep = keep
		w.restart()
		second, third := w.update("1.2"), w.update("1.3")
		fourth := w.update("1.4")
		for n, r := range []release.Release{first, second, third} {
			assert.Equal(t, stay[n], w.there(r), "keep %d: release %d", keep, n+1)
			assert.Equal(t, stay[n], w.Node.Pinned(velum, r.Digest), "keep %d: pin of release %d", keep, n+1)
		}
		assert.True(t, w.there(fourth))
		w.idle()
	}
}

const apiserver = "registry.suse.com/caasp/v4/kube-apiserver"

// kubeadm's pod manifest has no template: it keeps the pull policy with which kubelet starts it without a registry. A
// rollback writes IfNotPresent, and the next apply restores Always.
func TestPodManifestWithoutATemplateKeepsItsPullPolicy(t *testing.T) {
	for _, own := range []string{"IfNotPresent", "Always"} {
		run(t, own, func(t *testing.T) {
			w := newWorld(t)
			w.Policy.Manage = map[string]bool{"kube-apiserver.yaml": true}
			text := func(tag string) string {
				return strings.Replace(string(rendered("kube-apiserver", "kube-apiserver="+apiserver+":"+tag)), "Always", own, 1)
			}
			first := w.Registry.Release(apiserver, "1.28.0", 1, "1.1")
			w.Node.PutPodManifest("kube-apiserver.yaml", []byte(text("1.28.0-rev1")))
			w.Node.Sync()
			w.check()
			second := w.Registry.Release(apiserver, "1.28.0", 2, "1.1")
			s := w.check()
			assert.Equal(t, []status.Edit{{
				Container: "kube-apiserver", Field: "image", From: "1.28.0-rev1-build1.1", To: "1.28.0-rev2-build1.1",
			}}, podOf(s, "kube-apiserver.yaml").Edits, own)

			out, _ := w.apply()

			require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			w.runs("kube-apiserver.yaml", "kube-apiserver", second.Digest)
			assert.Equal(t, text("1.28.0-rev2"), w.Node.PodManifest("kube-apiserver.yaml"))
			out, _ = w.rollback("kube-apiserver")
			require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
			w.runs("kube-apiserver.yaml", "kube-apiserver", first.Digest)
			out, _ = w.retry()
			require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			assert.Equal(t, text("1.28.0-rev2"), w.Node.PodManifest("kube-apiserver.yaml"))
		})
	}
}

// dryRun asks for a dry run, and asserts that it leaves record, status and pod manifests alone.
func (n *neighbours) dryRun(t *testing.T, req agent.ApplyRequest) []status.Outcome {
	t.Helper()
	record, files, before := n.Disk.JSON(), n.Node.PodManifest("dex.yaml"), n.Status()
	req.DryRun = true
	out, err := n.Apply(t.Context(), req, nil)
	require.NoError(t, err)
	assert.Equal(t, record, n.Disk.JSON())
	assert.Equal(t, files, n.Node.PodManifest("dex.yaml"))
	assert.Equal(t, before, n.Status())
	return out
}

// A dry run gives what an apply would do, in its order, and what holds the rest.
func TestADryRunSaysWhatAnApplyWouldDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.offer(t)
		_, err := n.Hold(t.Context(), []string{"db.yaml"}, false, "holidays", time.Time{})
		require.NoError(t, err)
		out := n.dryRun(t, agent.ApplyRequest{Which: plan.All()})
		require.Len(t, out, 3)
		assert.Equal(t, "dex.yaml", out[0].PodManifest)
		assert.Equal(t, status.ResultWouldApply, out[0].Result)
		assert.Len(t, out[0].Edits, 1)
		assert.Equal(t, status.ResultHeld, out[1].Result)
		assert.Contains(t, out[1].Reason, "holidays")
		assert.Equal(t, status.ResultNothing, out[2].Result)
		applied, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, applied[0].Result)
	})
}

// With --retry it counts what was rolled back, which stays denied.
func TestADryRunOfARetryAllowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		out, err := n.Rollback(t.Context(), plan.Named("velum.yaml"), nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultRolledBack, out[0].Result)
		which := plan.Named("velum.yaml")
		assert.Equal(t, status.ResultNothing, n.dryRun(t, agent.ApplyRequest{Which: which})[0].Result)
		assert.Equal(t, status.ResultWouldApply, n.dryRun(t, agent.ApplyRequest{Which: which, Retry: true})[0].Result)
		assert.Equal(t, status.ResultNothing, n.dryRun(t, agent.ApplyRequest{Which: which})[0].Result)
	})
}

// sandboxes is a runtime whose sandboxes stay up, or cannot be listed, for a while.
type sandboxes struct {
	node.Pods
	until   time.Time
	wrong   error
	cleared *int
}

func (s sandboxes) SandboxReady(ctx context.Context, id string) (bool, error) {
	if time.Now().Before(s.until) {
		return s.wrong == nil, s.wrong
	}
	return s.Pods.SandboxReady(ctx, id)
}

func (s sandboxes) Clear(ctx context.Context, id string) error {
	*s.cleared++
	return s.Pods.Clear(ctx, id)
}

// The pod manifest is put back only when the pod is down and kubelet has forgotten it.
func TestPodManifestStaysAsideUntilKubeletForgetsThePod(t *testing.T) {
	for name, c := range map[string]struct {
		grace string
		until time.Duration // how long the sandbox stays up
		wrong error
		want  time.Duration
	}{
		"down at once":                  {"", 0, nil, 1500 * time.Millisecond},
		"down after a while":            {"", 3 * time.Second, nil, 4500 * time.Millisecond},
		"the runtime was away":          {"", 3 * time.Second, errors.New("cri"), 4500 * time.Millisecond},
		"not down in time":              {"", time.Hour, nil, 40 * time.Second},
		"not down in its own long time": {"  terminationGracePeriodSeconds: 60\n", time.Hour, nil, 70 * time.Second},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Policy.Forgets = apply.KubeletForgets
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", []byte(string(podYAML("velum", "velum="+velum+":__TAG__"))+c.grace))
			w.check()
			second := w.publish(2, "1.2")
			began, cleared := time.Now(), 0
			w.agent.Pods = sandboxes{w.Node, began.Add(c.until), c.wrong, &cleared}
			w.applies()
			assert.Equal(t, c.want, time.Since(began))
			assert.Equal(t, 1, cleared)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}

// ended is a directory that does nothing for a canceled caller, as a real one.
type ended struct{ node.PodFiles }

func (e ended) PutBack(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.PodFiles.PutBack(ctx)
}

func TestPodManifestIsPutBackWhenTheAgentStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Forgets = apply.KubeletForgets
		w.restart()
		w.publish(2, "1.2")
		ctx, kill := w.killable()
		w.agent.Files = ended{w.Node}
		w.Node.OnAside = func(string) error { kill(); return nil }
		w.applyWith(ctx)
		assert.Empty(t, w.Node.Aside())
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// lateKubelet is a runtime in which kubelet started a pod just before its pod manifest was set aside.
type lateKubelet struct {
	*agenttest.Node
	t        *testing.T
	aside    *time.Time    // when it was set aside; zero: not yet
	runs     time.Duration // how long it runs after that
	failing  time.Duration // how long CRI does not list containers after that
	whenBack *time.Duration
	cleared  *[]string
}

func (l lateKubelet) isWithin(d time.Duration) bool {
	return !l.aside.IsZero() && time.Since(*l.aside) < d
}

func (l lateKubelet) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if l.isWithin(l.failing) {
		return nil, nil, errors.New("cri: deadline exceeded")
	}
	all, used, err := l.Node.Containers(ctx)
	if l.isWithin(l.runs) {
		all = append(all, node.Container{
			ID: "late", Sandbox: "late", Pod: "velum-" + agenttest.NodeName, Namespace: "default", Name: "velum", Running: true,
		})
	}
	return all, used, err
}

func (l lateKubelet) SandboxReady(ctx context.Context, id string) (bool, error) {
	if id == "late" {
		return l.isWithin(l.runs), nil
	}
	return l.Node.SandboxReady(ctx, id)
}

func (l lateKubelet) Clear(ctx context.Context, id string) error {
	if id == "late" {
		*l.cleared = append(*l.cleared, id)
	}
	return l.Node.Clear(ctx, id)
}

func (l lateKubelet) Write(ctx context.Context, was node.PodFile, data []byte) error {
	*l.whenBack = time.Since(*l.aside)
	return l.Node.Write(ctx, was, data)
}

// The next pod manifest is written when the pod that kubelet started meanwhile is down: a draining pod would get the
// health check. A runtime that does not list containers is asked again.
func TestPodThatKubeletJustStartedIsAwaited(t *testing.T) {
	const grace, slack, forgets = 30 * time.Second, 10 * time.Second, 1500 * time.Millisecond
	for name, c := range map[string]struct {
		runs, failing, back time.Duration
		cleared             []string
	}{
		"CRI answers":           {runs: 25 * time.Second, back: 25*time.Second + forgets, cleared: []string{"late"}},
		"CRI fails once":        {25 * time.Second, forgets + 1, 25*time.Second + forgets, []string{"late"}},
		"CRI fails for a while": {time.Minute, 20 * time.Second, grace + slack, []string{"late"}},
		"CRI fails to the end":  {runs: 35 * time.Second, failing: grace + slack + time.Second, back: grace + slack},
	} {
		run(t, name, func(t *testing.T) {
			w, _ := running(t)
			w.Policy.Forgets = forgets
			w.restart()
			second := w.publish(2, "1.2")
			var (
				aside   time.Time
				back    time.Duration
				cleared []string
			)
			late := lateKubelet{w.Node, t, &aside, c.runs, c.failing, &back, &cleared}
			w.agent.Pods, w.agent.Files = late, late
			w.Node.OnAside = func(string) error { aside = time.Now(); return nil }
			w.applies()
			assert.Equal(t, c.back, back)
			assert.Equal(t, c.cleared, cleared)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}
