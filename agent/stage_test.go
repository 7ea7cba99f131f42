// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// CRI hears of an image by an event, which comes late on a busy node.
func TestStagedImageMayBeListedALittleLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Unlisted = 5
		began := time.Now()
		s := w.poll()
		assert.Equal(t, agent.StateStaged, s.State, s.Reason)
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
		assert.Equal(t, agent.StateFailed, s.State)
		assert.Contains(t, s.Reason, "staged, but cri does not list it after 10s")
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestPulling(t *testing.T) {
	t.Parallel()
	p := func(ref, phase string) agent.Progress { return agent.Progress{Reference: ref, Phase: phase} }
	var pulls []agent.Progress
	for _, step := range []struct {
		heard agent.Progress
		want  []agent.Progress
	}{
		{p("velum", "asking"), nil},
		{p("velum", "resolving"), []agent.Progress{p("velum", "resolving")}},
		{p("db", "downloading"), []agent.Progress{p("db", "downloading"), p("velum", "resolving")}},
		{p("velum", "unpacking"), []agent.Progress{p("db", "downloading"), p("velum", "unpacking")}},
		{p("db", "failed"), []agent.Progress{p("velum", "unpacking")}},
		{p("velum", "done"), nil},
	} {
		pulls = agent.Pulling(pulls, step.heard)
		assert.Equal(t, step.want, pulls, "after %v", step.heard)
	}
}

func TestAPullThatFailsIsUnderWayNoMore(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.OnStage = func(context.Context, agent.Release) error { return agenttest.ErrRefused }
	var last agent.Progress
	w.agent.Progress = func(p agent.Progress) { last = p }
	w.check()
	assert.Equal(t, agent.Progress{Reference: next.StagedName(), Phase: "failed"}, last)
}

// What could not be pulled is tried again in the next cycle, not at once: the files that wait for it do not change that.
func TestAFailedPullIsTriedOnceACycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		tried := 0
		w.Node.OnStage = func(context.Context, agent.Release) error {
			tried++
			return errors.New("the registry broke off")
		}
		w.check()
		assert.Equal(t, 1, tried)
		w.look()
		assert.Equal(t, 2, tried)
	})
}
