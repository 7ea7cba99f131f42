// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// CRI receives an event for a new image, which is late on a busy node.
func TestStagedImageMayBeListedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Unlisted = 5
		began := time.Now()
		s := w.poll()
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
		assert.Equal(t, 2500*time.Millisecond, time.Since(began))
	})
}

func TestStagedImageThatCRINeverListsIsNotOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Unlisted = 1000
		began := time.Now()
		s := w.poll()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "staged, but cri does not list it after 10s")
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestPullingListsPullsUnderWay(t *testing.T) {
	t.Parallel()
	p := func(ref, phase string) status.Progress { return status.Progress{Reference: ref, Phase: phase} }
	var pulls []status.Progress
	for _, step := range []struct {
		heard status.Progress
		want  []status.Progress
	}{
		{p("velum", "asking"), nil},
		{p("velum", "resolving"), []status.Progress{p("velum", "resolving")}},
		{p("db", "downloading"), []status.Progress{p("db", "downloading"), p("velum", "resolving")}},
		{p("velum", "unpacking"), []status.Progress{p("db", "downloading"), p("velum", "unpacking")}},
		{p("db", "failed"), []status.Progress{p("velum", "unpacking")}},
		{p("velum", "done"), nil},
	} {
		pulls = status.UpdatePulls(pulls, step.heard)
		assert.Equal(t, step.want, pulls, "after %v", step.heard)
	}
}

func TestFailedPullIsNoLongerListed(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
	var last status.Progress
	w.agent.Progress = func(p status.Progress) { last = p }
	w.check()
	assert.Equal(t, status.Progress{Reference: next.StagedName(), Phase: "failed"}, last)
}

// What could not be pulled is tried again in the next cycle, not at once: the files that wait for it do not change that.
func TestFailedPullIsTriedOnceACycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		tried := 0
		w.Node.OnStage = func(context.Context, release.Release) error {
			tried++
			return errors.New("the registry broke off")
		}
		w.check()
		assert.Equal(t, 1, tried)
		w.observe()
		assert.Equal(t, 2, tried)
	})
}
