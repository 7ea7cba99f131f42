// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// jumps are how far a clock was wrong for some cycles.
var jumps = map[string]time.Duration{
	"1970": -56 * 365 * 24 * time.Hour, "91 days ahead": 91 * 24 * time.Hour, "a year ahead": 365 * 24 * time.Hour,
}

// Under a wrong clock mode auto does not apply what a person holds until tomorrow.
func TestWrongClockEndsNoHold(t *testing.T) {
	for title, jump := range jumps {
		run(t, title, func(t *testing.T) {
			w, first := running(t)
			w.hold(record.PersonHold{Until: w.Clock.Now().Add(24 * time.Hour)}, "velum")
			w.Policy.Auto = true
			w.restart()
			second := w.publish(1, "1.2")
			w.Clock.Add(jump)
			s := w.observe()
			w.restart()
			w.check()
			w.runs("velum.yaml", "velum", first.Digest)
			if jump > 0 {
				assert.Contains(t, s.Reason, "the clock has jumped past it")
				assert.Len(t, s.StandingHolds, 1)
			}
			w.Clock.Add(-jump)
			w.observe()
			w.runs("velum.yaml", "velum", first.Digest)
			w.Clock.Add(23 * time.Hour)
			w.check()
			w.runs("velum.yaml", "velum", first.Digest)
			w.Clock.Add(time.Hour)
			w.check()
			w.runs("velum.yaml", "velum", second.Digest)
			assert.Empty(t, w.record().Holds)
		})
	}
}

// Under a wrong clock, and after it, mode auto does not apply again what failed.
func TestWrongClockEndsNoDenial(t *testing.T) {
	for title, jump := range jumps {
		run(t, title, func(t *testing.T) {
			w, first := rolledBackOnce(t)
			bad := w.record().Denied
			require.Len(t, bad, 1)
			for _, tag := range []string{"4.0.0", "4.0.0-rev1"} { // the tag names it no longer
				w.Registry.Tag(velum, tag, first.Digest)
			}
			w.check()
			w.Policy.Auto = true
			w.restart()
			w.Clock.Add(jump)
			w.observe()
			w.check()
			w.Clock.Add(-jump)
			s := w.check()
			assert.Equal(t, status.StateFailed, s.State, "it is still the newest one that is known: %s", s.Reason)
			for key := range bad {
				assert.Contains(t, w.record().Denied, key)
			}
			w.runs("velum.yaml", "velum", first.Digest)
		})
	}
}

// A clock that goes back ends an approval that waits.
func TestClockThatGoesBackVoidsAnApproval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := offered(t)
		ctx, kill := w.killable()
		w.agent.Recorder = &afterSave{w.Disk, kill}
		w.applyWith(ctx)
		require.Len(t, w.record().Approved, 1)
		w.restart()
		w.Clock.Add(-2 * time.Hour)
		s := w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Empty(t, w.record().Approved)
		assert.Equal(t, status.StateStaged, s.State)
	})
}
