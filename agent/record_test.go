// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// managedRolledBack returns a pod without a template that was rolled back, and its two releases.
func managedRolledBack(t *testing.T) (w *world, first, bad release.Release) {
	t.Helper()
	w = newWorld(t)
	first = w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Manage = map[string]bool{"velum.yaml": true}
	w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
	w.check()
	bad = w.bad(1, "9.9")
	w.apply()
	w.runs("velum.yaml", "velum", first.Digest)
	w.isPinned(first.Long, first.Digest)
	return w, first, bad
}

// A pod that was rolled back names a digest that only the record knew as the agent's. Without the record the pod stays
// followed, and until a person confirms the loss, the node says so and mode auto waits.
func TestLostRecordIsSaidUntilAPersonConfirms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, bad := managedRolledBack(t)
		w.Policy.Auto = true
		w.Disk.Lose()
		w.restart()
		for range 2 {
			s := w.check()
			assert.True(t, s.HasReason(status.KindLost), s.Reason)
			assert.Contains(t, s.Reason, "the record of the agent was lost")
			assert.NotContains(t, s.Reason, "up to date")
			assert.NotContains(t, s.Reason, "no image to follow")
			i := image(s, "velum.yaml", "velum")
			require.NotNil(t, i.Running)
			assert.Equal(t, first.Digest, i.Running.Digest)
			assert.Equal(t, "4.0.0-rev1", i.Follow)
			require.NotNil(t, i.Offered)
			assert.Equal(t, bad.Digest, i.Offered.Digest)
			assert.Equal(t, status.HoldRecord, i.Holds[0].Name)
			assert.Equal(t, status.HoldRecord, s.StandingHolds[0].Name)
			w.runs("velum.yaml", "velum", first.Digest)
			w.restart()
		}
		s := w.resume()
		assert.False(t, s.HasReason(status.KindLost), s.Reason)
		assert.Empty(t, s.StandingHolds)
		next := w.publish(1, "9.10")
		w.runs("velum.yaml", "velum", next.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// A first start is not a loss, also if it was killed early, or if only the rendering at boot has run.
func TestNewNodeHasLostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
		w.reboot()
		ctx, kill := w.killable()
		w.agent = w.Agent()
		w.agent.Progress = func(status.Progress) { kill() }
		_, _ = w.agent.Cycle(ctx, 1)
		w.restart()
		s := w.check()
		assert.False(t, s.HasReason(status.KindLost), s.Reason)
		assert.Nil(t, w.record().Lost)
	})
}

// The digest that a person wrote is the person's: it has no pin, or the record was not lost.
func TestDigestOfAPersonStaysThePersons(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := managedRolledBack(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		other := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		text := string(podYAML("db", "db="+mariadb+":10.0-rev1@"+other.Digest.String()))
		w.Policy.Manage["db.yaml"] = true
		w.Node.PutPodManifest("db.yaml", []byte(text))
		w.Disk.Lose()
		w.restart()
		s := w.check()
		assert.Empty(t, image(s, "db.yaml", "db").Image, "it is not followed")
		assert.Equal(t, velum, image(s, "velum.yaml", "velum").Image)
		assert.Equal(t, text, w.Node.PodManifest("db.yaml"))
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Disk.JSON(), `"lost"`)
	})
}

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
