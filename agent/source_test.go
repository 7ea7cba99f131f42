// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestRegistryAwayAndBack(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	since := w.Clock.Now()
	w.Clock.Add(12 * time.Hour)
	w.Registry.Down(agenttest.ErrRefused)

	s := w.poll()

	assert.Equal(t, status.StateStale, s.State, s.Reason)
	assert.Contains(t, s.Reason, "registry.test")
	assert.Contains(t, s.Reason, "connection refused")
	assert.Contains(t, s.Reason, since.Format(time.RFC3339))
	assert.Equal(t, 1, s.Sources[0].Failures)
	assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").Offered.Digest, "no offer is taken back")
	assert.NotEmpty(t, w.Grain.Last().Updates)
	assert.Equal(t, status.StateStale, w.observe().State, "looking does not heal it")
	w.restart()
	assert.Equal(t, status.StateStale, w.observe().State, "nor does a restart")

	w.Registry.Down(nil)
	s = w.poll()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Zero(t, s.Sources[0].Failures)
}

func TestUnreachableRegistryIsReportedUntilItAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Down(agenttest.ErrRefused)
	for _, s := range []status.Status{w.poll(), w.observe()} {
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "connection refused")
	}
}

func TestFollowedTagGoneIsAnAlarmThatStays(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Registry.Retract(velum, "4.0.0-rev1")

	s := w.poll()

	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "the followed tag is gone")
	assert.Equal(t, "withheld", podOf(s, "velum.yaml").Holds[0].Name)
	assert.Zero(t, s.Sources[0].Failures, "the source did answer")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.Equal(t, status.StateFailed, w.observe().State, "until the next answer")
	w.restart()
	assert.Equal(t, status.StateFailed, w.observe().State, "also over a restart")
	w.Registry.Down(agenttest.ErrRefused)
	assert.Equal(t, status.StateFailed, w.poll().State, "no answer is not a better answer")
	assert.True(t, w.Node.Pinned(velum, first.Digest))

	w.Registry.Down(nil)
	w.Registry.Tag(velum, "4.0.0-rev1", first.Digest)
	assert.Equal(t, status.StateCurrent, w.poll().State)
}
