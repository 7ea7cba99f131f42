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
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// confirming is a node with velum current that reads what is new twice.
func confirming(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Policy.ConfirmAfter = 30 * time.Second
	w.restart()
	return w, first
}

// meanwhile does something after each pause, n counts them from 1.
func (w *world) meanwhile(do func(n int)) {
	n := 0
	var said time.Duration
	w.agent.Progress = func(p status.Progress) {
		if p.Phase != "confirming" {
			return
		}
		if said += 10 * time.Second; said%w.Policy.ConfirmAfter == 0 {
			n++
			do(n)
		}
	}
}

func TestNewDigestIsOfferedAfterTwoReadings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		began := time.Now()
		s := w.poll()
		assert.Equal(t, 30*time.Second, time.Since(began))
		assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
		assert.Equal(t, agenttest.Counts{Heads: 3, Lists: 1, Describes: 1}, w.Registry.Counts(), "two readings, and its long tag")
		began = time.Now()
		w.poll()
		w.restart()
		w.poll()
		assert.Zero(t, time.Since(began), "what was read twice is not read again")
		assert.Equal(t, agenttest.Counts{Heads: 2}, w.Registry.Counts())
	})
}

func TestDigestOnTheNodeIsNotConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Disk.Lose()
		w.restart()
		began := time.Now()
		s := w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Zero(t, time.Since(began))
	})
}

// OBS moves a tag that it cannot delete to a mangled manifest, and deletes that.
func TestMomentaryDigestIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := confirming(t)
		mangled := w.Registry.Publish(velum, "4.0.0-rev1")
		w.meanwhile(func(int) { w.Registry.Tag(velum, "4.0.0-rev1", first.Digest) })
		s := w.poll()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.Empty(t, w.Node.Names(mangled.Digest))
		w.idle()
	})
}

func TestTagThatVanishesBetweenReadingsIsAnAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.meanwhile(func(int) { w.Registry.Retract(velum, "4.0.0-rev1") })
		s := w.poll()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "gone")
	})
}

func TestMovingTagIsReadUntilItIsStable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		var last release.Release
		w.meanwhile(func(n int) {
			if n == 1 {
				last = w.Registry.Release(velum, "4.0.0", 1, "1.3")
			}
		})
		began := time.Now()
		s := w.poll()
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, last.Digest, image(s, "velum.yaml", "velum").Offered.Digest, s.Reason)
	})
}

func TestUnstableTagIsDeferred(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.meanwhile(func(n int) { w.Registry.Release(velum, "4.0.0", 1, "2."+string(rune('0'+n))) })
		s := w.poll()
		assert.Equal(t, status.StateStale, s.State)
		assert.Contains(t, s.Reason, "another digest at each of 4 readings")
		assert.Equal(t, first.Digest, image(s, "velum.yaml", "velum").Running.Digest)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		require.NotNil(t, s.Sources[0].RetryAt)
		w.agent.Progress = nil
		w.Clock.Add(10 * time.Minute)
		s = w.cycle(source.PollFailed)
		assert.NotNil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
	})
}

func TestUnstableNewerTagIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.meanwhile(func(n int) { w.Registry.Release(velum, "4.0.0", 2, "2."+string(rune('0'+n))) })
		s := w.check()
		i := image(s, "velum.yaml", "velum")
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Nil(t, i.Offered)
		require.NotEmpty(t, i.Refused)
		assert.Equal(t, policy.RuleConfirm, i.Refused[0].Rule)
	})
}

func TestFailedSecondReadingKeepsTheLastAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.meanwhile(func(int) { w.Registry.Down(errors.New("connection refused")) })
		s := w.poll()
		assert.Equal(t, status.StateStale, s.State)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.Equal(t, 1, s.Sources[0].Failures)
	})
}

func TestStopBetweenReadingsRecordsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		ctx, stop := context.WithCancel(t.Context())
		w.meanwhile(func(int) { stop() })
		s, err := w.agent.Cycle(ctx, source.PollDue)
		require.NoError(t, err)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.Zero(t, s.Sources[0].Failures)
		w.restart()
		began := time.Now()
		s = w.poll()
		assert.Equal(t, 30*time.Second, time.Since(began), "the next one reads twice")
		assert.NotNil(t, image(s, "velum.yaml", "velum").Offered)
	})
}

func TestPlanDoesNotConfirm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		began := time.Now()
		_, err := w.agent.Plan(t.Context(), source.PollAll)
		require.NoError(t, err)
		assert.Zero(t, time.Since(began))
	})
}

func TestHeartbeatsContinueWhileTheLoopConfirms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.Policy.ConfirmAfter = time.Hour
		l := start(t, w, 0, 30*time.Second)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.manager.mu.Lock()
		defer l.manager.mu.Unlock()
		assert.LessOrEqual(t, l.manager.gap, 30*time.Second)
	})
}

func TestSpreadOfStaging(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.StageDelay = time.Hour
	w.restart()
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	other := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	staged := func(d digest.Digest) bool { return len(w.Node.Names(d)) > 0 }

	s := w.poll()
	assert.False(t, staged(next.Digest), "its moment has not come")
	assert.Contains(t, image(s, "velum.yaml", "velum").Notes, "staging begins at 2026-05-01T13:00:00Z")
	assert.Equal(t, "2026-05-01T13:00:00Z", image(s, "velum.yaml", "velum").StageFrom.Format(time.RFC3339))
	assert.True(t, staged(other.Digest), "a new pod does not wait")
	assert.Empty(t, w.Grain.Last().Updates)
	w.idle()
	w.Clock.Add(59 * time.Minute)
	w.poll()
	assert.False(t, staged(next.Digest), "another poll does not move it")
	w.restart()
	w.Clock.Add(time.Minute)
	w.observe()
	assert.True(t, staged(next.Digest))
	w.idle()

	again := w.Registry.Release(velum, "4.0.0", 1, "1.3")
	w.check()
	assert.True(t, staged(again.Digest), "a person does not wait")
}

func TestSpreadOfStagingUnderAWrongClock(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.StageDelay = time.Hour
	w.restart()
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Clock.Add(10 * 365 * 24 * time.Hour)
	w.poll()
	w.Clock.Add(-10 * 365 * 24 * time.Hour)
	w.observe()
	assert.NotEmpty(t, w.Node.Names(next.Digest))
}
