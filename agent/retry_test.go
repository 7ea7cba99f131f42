// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func refuses(status int, retryAt time.Time) error {
	return &release.SourceError{
		Repository: velum, Host: agenttest.Host, Status: status, RetryAt: retryAt, Err: errors.New("refused"),
	}
}

func TestFailedSourceIsRetriedAfterItsBackoffAndNotBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wish time.Duration // of the host
		want time.Duration
	}{
		"at its own time":                   {0, 5 * time.Minute},
		"after the host's wish, spread":     {time.Hour, 2 * time.Hour},
		"a wish that is past is none":       {-time.Hour, 5 * time.Minute},
		"a wish of a second is no hurry":    {time.Second, 5 * time.Minute},
		"ten years were said by a mad host": {10 * 365 * 24 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := running(t)
			w.agent.Jitter = func() float64 { return 0.5 }
			w.Registry.Down(refuses(503, w.Clock.Now().Add(c.wish)))
			s := w.poll()
			assert.Equal(t, status.StateStale, s.State)
			require.NotNil(t, s.Sources[0].RetryAt)
			w.Registry.Counts()
			if c.want > 0 {
				assert.Equal(t, w.Clock.Now().Add(c.want), *s.Sources[0].RetryAt)
				w.Clock.Add(c.want - time.Second)
				w.cycle(source.PollFailed)
				assert.Zero(t, w.Registry.Counts(), "a second too early")
				w.restart()
				w.cycle(source.PollFailed)
				assert.Zero(t, w.Registry.Counts(), "and after a restart")
				w.Clock.Add(time.Second)
			}
			w.Registry.Down(nil)
			s = w.cycle(source.PollFailed)
			assert.Equal(t, 1, w.Registry.Counts().Heads)
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			assert.Nil(t, s.Sources[0].RetryAt)
			w.cycle(source.PollFailed)
			assert.Zero(t, w.Registry.Counts(), "what answered is not retried")
		})
	}
}

type pacer struct {
	pace  record.Pace
	tries int
}

func (p *pacer) Pace() record.Pace    { return p.pace }
func (p *pacer) Resume(x record.Pace) { p.pace = x }
func (p *pacer) TryAgain()            { p.tries++ }

func TestLoopRetriesWhatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute)
		slot := *l.Status().NextCheck
		pass(slot.Sub(l.now()) - time.Second)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(2 * time.Second)
		first := *l.Status().NextCheck
		assert.WithinDuration(t, l.now().Add(5*time.Minute), first, 151*time.Second)
		l.Registry.Counts()
		pass(first.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
		pass(2 * time.Second)
		assert.Equal(t, 1, l.Registry.Counts().Heads)
		assert.Equal(t, 2, l.Status().Sources[0].Failures)
		l.Registry.Down(nil)
		pass(l.Status().NextCheck.Sub(l.now()) + time.Second)
		assert.Equal(t, 1, l.Registry.Counts().Heads)
		assert.Equal(t, status.StateCurrent, l.Status().State)
		assert.Equal(t, slot.Add(12*time.Hour), *l.Status().NextCheck, "and in its slot again")
	})
}

func TestLoopRetriesNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute)
		l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		asked := 0
		l.Registry.OnAsk = func(_, name string) {
			l.Registry.Down(nil)
			if strings.HasPrefix(name, velum) {
				l.Registry.Down(refuses(503, time.Time{}))
			} else {
				asked++
			}
		}
		_, err = l.Check(t.Context(), nil)
		require.NoError(t, err)
		asked = 0
		pass(l.Status().NextCheck.Sub(l.now()) + time.Second)
		assert.Zero(t, asked)
	})
}

// An outage of days costs the registry a handful of requests a day, and its end
// no burst: from some failures on there is only the slot.
func TestLoopBacksOffFromARegistryThatIsAwayForDays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(3 * 24 * time.Hour)
		l.Registry.Counts()
		pass(24 * time.Hour)
		assert.LessOrEqual(t, l.Registry.Counts().Heads, 2)
		l.Registry.Down(nil)
		pass(12 * time.Hour)
		assert.Equal(t, status.StateCurrent, l.Status().State)
	})
}

func TestLoopDoesNotSpinAfterFailedObservations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute)
		pass(l.Status().NextCheck.Sub(l.now()) - time.Second)
		l.Registry.Down(refuses(503, time.Time{}))
		pass(2 * time.Second)
		l.Node.Blind(assert.AnError)
		pass(time.Hour) // a loop that spins never gets here
		l.Node.Blind(nil)
		l.Registry.Down(nil)
		pass(24 * time.Hour)
		assert.Equal(t, status.StateCurrent, l.Status().State)
	})
}

func TestLoopWithoutIntervalNeverRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		l.Registry.Down(refuses(503, time.Time{}))
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Registry.Counts()
		pass(3 * 24 * time.Hour)
		assert.Zero(t, l.Registry.Counts())
		assert.Nil(t, l.Status().NextCheck)
	})
}

// After an apply, the pod manifest follows the tag of what was applied. The last answer names
// it, even if the rules of then did not allow it.
func TestReleaseOfAnotherTagThatARetryAppliesIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := running(t)
		next := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.check()
		w.Node.Crash(next.Digest, true)
		w.apply()
		w.check() // refuses what did not come up
		w.Node.Crash(next.Digest, false)

		_, s := w.retry()

		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", next.Digest)
		assert.Equal(t, "4.0.0-rev2", image(s, "velum.yaml", "velum").Follow)
	})
}
