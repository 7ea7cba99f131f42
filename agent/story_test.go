// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// running returns a node that runs velum 4.0.0-rev1, rendered and up to date.
func running(t *testing.T) (*world, release.Release) {
	t.Helper()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	s := w.check()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", first.Digest)
	w.Registry.Counts()
	return w, first
}

func TestFirstRunWritesTheNewPodAndStagesItFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))

	s := w.check()

	assert.Equal(t, string(rendered("velum", "velum="+velum+":4.0.0-rev1")), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.True(t, w.Node.Pinned(velum, first.Digest), "what runs is pinned")
	assert.Contains(t, w.Node.Names(first.Digest), velum+":4.0.0-rev1-build1.1", "it was staged by its long tag")
	i := image(s, "velum.yaml", "velum")
	require.NotNil(t, i.Running)
	assert.Equal(t, status.Named{Tag: "4.0.0-rev1-build1.1", Digest: first.Digest}, *i.Running)
	assert.Nil(t, i.Offered)
	assert.False(t, i.PickedUp, "the first digest that ever runs was not picked up")
	assert.Empty(t, w.Grain.Last().Updates)
	w.idle()
}

func TestPinsOfNewPodsSurviveTheCycleThatStagesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutPodManifest("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.13")) // runs now, and is pinned first
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	assert.True(t, w.Node.Pinned(velum, first.Digest))
}

func TestNewPodIsNotWrittenBeforeItsImagesAreStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	lost := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	broken := true
	w.Node.OnStage = func(_ context.Context, r release.Release) error {
		if r.Digest == lost.Digest && broken {
			return agenttest.ErrRefused
		}
		return nil
	}

	s := w.check()

	assert.Empty(t, w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "connection refused")
	broken = false
	s = w.observe()
	assert.NotEmpty(t, w.Node.PodManifest("velum.yaml"), "the next cycle goes on")
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
}

func TestRebuildIsAppliedAndTheRollbackTargetIsPinned(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.poll()

	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	i := image(s, "velum.yaml", "velum")
	assert.Equal(t, "rebuild", i.Change)
	assert.True(t, i.Staged)
	assert.Equal(t, &status.Named{Tag: "4.0.0-rev1-build1.2", Digest: second.Digest}, i.Offered)
	w.Clock.Add(time.Hour)
	assert.Equal(t, s.Since, w.poll().Since, "since moves only with the state")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.Equal(t, []status.AnnouncedUpdate{{
		Image: velum, Change: "rebuild", From: "4.0.0-rev1-build1.1", To: "4.0.0-rev1-build1.2", Digest: second.Digest,
	}}, w.Grain.Last().Updates)
	assert.Equal(t, w.Grain.Last().Updates, s.Updates, "all are told the same")
	w.idle()

	out, s := w.apply("velum")

	assert.Equal(t, []status.Outcome{{
		PodManifest: "velum.yaml", Change: "rebuild", Result: status.ResultApplied,
		Edits: []status.Edit{{Container: "velum", Field: "image", From: "4.0.0-rev1-build1.1", To: "4.0.0-rev1-build1.2"}},
	}}, out)
	w.runs("velum.yaml", "velum", second.Digest)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Empty(t, w.Grain.Last().Updates)
	assert.Equal(t, []status.AnnouncedUpdate{}, s.Updates, "none is no null")
	assert.False(t, image(s, "velum.yaml", "velum").PickedUp, "it was approved")
	w.Node.Collect()
	assert.True(t, w.Node.Pinned(velum, first.Digest), "the rollback target")
	assert.NotEmpty(t, w.Node.Names(first.Digest), "and it is not collected")
	w.idle()
}

func TestRevisionWaitsUnderRenderedAndIsWrittenOnApproval(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	before := w.Node.PodManifest("velum.yaml")
	second := w.Registry.Release(velum, "4.0.0", 2, "2.1")

	s := w.check()

	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "revision", image(s, "velum.yaml", "velum").Change)
	assert.Equal(t, before, w.Node.PodManifest("velum.yaml"), "not before it is approved")
	assert.Equal(t, string(rendered("velum", "velum="+velum+":4.0.0-rev2")), w.Node.WaitingFile("velum.yaml"))
	assert.True(t, podOf(s, "velum.yaml").Waiting)
	w.runs("velum.yaml", "velum", first.Digest)
	w.idle()

	s = w.applies()
	assert.Equal(t, string(rendered("velum", "velum="+velum+":4.0.0-rev2")), w.Node.PodManifest("velum.yaml"))
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
	w.runs("velum.yaml", "velum", second.Digest)
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Equal(t, "4.0.0-rev2", image(s, "velum.yaml", "velum").Follow)
	w.idle()
	s = w.observe()
	assert.Equal(t, status.StateCurrent, s.State, "also ten minutes later, without asking: "+s.Reason)
	w.restart()
	s = w.observe()
	assert.Equal(t, status.StateCurrent, s.State, "and after a restart: "+s.Reason)
}

func TestFirstConversionNeedsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)

	s := w.check()

	assert.Equal(t, string(old), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "convert", podOf(s, "velum.yaml").Change)
	assert.Equal(t, "convert", w.Grain.Last().Updates[0].Change)
	s = w.applies("velum.yaml")
	assert.Equal(t, string(rendered("velum", "velum="+velum+":4.0.0-rev1")), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.runs("velum.yaml", "velum", first.Digest)
	w.idle()
}

func TestUnresolvedImageLeavesItsPodUnrendered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := podYAML("velum", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1")
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	w.Registry.Retract(mariadb, "10.0-rev1")
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, "unresolved", podOf(s, "velum.yaml").Holds[0].Name)
	assert.Equal(t, string(old), w.Node.PodManifest("velum.yaml"))
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
	assert.Empty(t, w.Grain.Last().Updates)
	assert.Empty(t, w.Node.Names(second.Digest), "nothing of it is staged")
	assert.Empty(t, podOf(s, "velum.yaml").Change)
	assert.Empty(t, image(s, "velum.yaml", "velum").Change, "nothing of it is offered")
	out, _ := w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	w.idle()
}
