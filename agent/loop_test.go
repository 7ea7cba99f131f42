// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// manager is the service manager of a test.
type manager struct {
	mu   sync.Mutex
	said string
	turn time.Time // of the last sign of life
	gap  time.Duration
}

func (m *manager) Status(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = text
}

func (m *manager) Heartbeat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); !m.turn.IsZero() {
		m.gap = max(m.gap, now.Sub(m.turn))
	}
	m.turn = time.Now()
}

// looped is a node whose loop runs in a bubble, on the bubble's clock plus an
// offset that a test may change.
type looped struct {
	*world
	*agent.Loop
	manager *manager
	stop    context.CancelFunc
	ended   chan error
	offset  atomic.Int64
}

func (l *looped) now() time.Time { return time.Now().Add(time.Duration(l.offset.Load())) }

func loop(t *testing.T, interval, wake time.Duration) *looped {
	t.Helper()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	return start(t, w, interval, wake)
}

// start starts a daemon on the node, the first one or another.
func start(t *testing.T, w *world, interval, wake time.Duration) *looped {
	t.Helper()
	l := &looped{world: w, manager: &manager{}, ended: make(chan error, 1)}
	a := w.Agent()
	a.Now = l.now
	l.Loop = agent.NewLoop(a, l.manager, interval, wake, "machine")
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	go func() { l.ended <- l.Run(ctx) }()
	synctest.Wait()
	return l
}

// end stops the loop; every test of it ends so.
func (l *looped) end() {
	l.stop()
	require.NoError(l.t, <-l.ended)
}

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func TestLoopPollsInItsSlotAndNamesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		defer l.end()
		pass(10 * time.Minute) // the first poll of a new node
		slot := policy.NextSlot(l.now(), 12*time.Hour, "machine")
		require.NotNil(t, l.Status().NextCheck)
		assert.Equal(t, slot, *l.Status().NextCheck)
		l.Registry.Counts()
		pass(slot.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
		pass(2 * time.Second)
		assert.Equal(t, agenttest.Counts{Heads: 1}, l.Registry.Counts())
		assert.Equal(t, slot.Add(12*time.Hour), *l.Status().NextCheck)
		pass(12 * time.Hour)
		assert.Equal(t, agenttest.Counts{Heads: 1}, l.Registry.Counts(), "once an interval")
		assert.Contains(t, l.manager.said, "next check")
	})
}

// A node that has never asked does so within ten minutes, at a moment of its
// own; one that has does not, however often it is started.
func TestLoopPollsANewNodeSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		assert.Zero(t, l.Registry.Counts(), "not at the start")
		first := policy.NextSlot(l.now(), 10*time.Minute, "machine")
		assert.Equal(t, first, *l.Status().NextCheck)
		assert.Equal(t, status.StateUnchecked, l.Status().State, "never asked is neither current nor held")
		assert.Equal(t, "no registry was asked yet for velum.yaml", l.Status().Reason)
		pass(first.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
		pass(2 * time.Second)
		assert.Equal(t, 1, l.Registry.Counts().Lists)
		l.end()

		again := start(t, l.world, 12*time.Hour, 0)
		defer again.end()
		assert.Equal(t, policy.NextSlot(again.now(), 12*time.Hour, "machine"), *again.Status().NextCheck)
		pass(10 * time.Minute)
		assert.Zero(t, again.Registry.Counts())
	})
}

func TestLoopWithoutIntervalNeverPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		pass(3 * 24 * time.Hour)
		assert.Zero(t, l.Registry.Counts())
		assert.Nil(t, l.Status().NextCheck)
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.NotNil(t, s.LastCheck, "but a person may ask")
	})
}

func TestLoopObservesEveryTenMinutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Node.PutTemplate("velum.yaml", append([]byte("# a comment\n"), podYAML("velum", "velum="+velum+":4.0.0")...))
		pass(10*time.Minute + time.Second)
		assert.Contains(t, l.Node.PodManifest("velum.yaml"), "# a comment")
	})
}

func TestLoopSendsHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 30*time.Second)
		defer l.end()
		pass(24 * time.Hour)
		l.manager.mu.Lock()
		defer l.manager.mu.Unlock()
		assert.LessOrEqual(t, l.manager.gap, 30*time.Second)
	})
}

func TestLoopSerializesRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		var inside, most int
		var mu sync.Mutex
		l.Registry.OnAsk = func(string, string) {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
			mu.Lock()
			inside--
			mu.Unlock()
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				var heard int
				_, err := l.Check(t.Context(), func(status.Progress) { heard++ })
				assert.NoError(t, err)
				assert.Positive(t, heard)
			})
		}
		all.Wait()
		assert.Equal(t, 1, most)

		l.Registry.OnAsk = func(string, string) { time.Sleep(time.Hour) } //nolint:forbidigo // the bubble's time
		go func() { _, _ = l.Check(t.Context(), nil) }()
		synctest.Wait()
		assert.NotNil(t, l.Status().Progress, "status never waits, and shows what is under way")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Check(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "who does not want to wait need not")
		pass(4 * time.Hour)
	})
}

func TestLoopReportsThatItIsApplying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err = l.Check(t.Context(), nil)
		require.NoError(t, err)
		staged := l.Status().Since
		pass(time.Minute)
		l.Node.SetKubelet(false)
		go func() {
			pass(3 * time.Second)
			assert.Equal(t, status.StateApplying, l.Status().State)
			assert.True(t, l.Status().Since.After(staged), "since moves with the state")
			l.Node.Sync()
		}()
		out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, status.StateCurrent, l.Status().State)
		assert.True(t, l.Status().Since.After(staged))
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("nobody")}, nil)
		require.ErrorIs(t, err, plan.ErrUnknownImage)
		assert.Equal(t, status.StateCurrent, l.Status().State, "not applying any more")
	})
}

func TestLoopReloadsItsConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		before := *l.Status().LastCheck
		a := l.Agent()
		a.Now = l.now
		a.Version = "next"
		require.NoError(t, l.Reconfigure(t.Context(), a, time.Hour))
		assert.Equal(t, "next", l.Status().Version)
		require.NotNil(t, l.Status().NextCheck)
		assert.Equal(t, before, *l.Status().LastCheck, "what was known is still known")
		l.Registry.Counts()
		pass(time.Hour)
		assert.Equal(t, 1, l.Registry.Counts().Heads)
	})
}

func TestLoopSurvivesJumpsOfTheClock(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for name, jump := range map[string]time.Duration{
		"ten years on": years, "ten years back": -years, "an hour back": -time.Hour,
		"to 2270, beyond what 64 bits of nanoseconds since 1970 can say": 27 * years,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := loop(t, 12*time.Hour, 0)
				defer l.end()
				pass(13 * time.Hour)
				l.Registry.Counts()
				l.offset.Add(int64(jump))
				pass(10*time.Minute + time.Second)
				next := *l.Status().NextCheck
				assert.WithinDuration(t, l.now().Add(6*time.Hour), next, 6*time.Hour, "the slot follows the clock")
				l.Registry.Counts()
				pass(12 * time.Hour)
				assert.Equal(t, 1, l.Registry.Counts().Heads, "one poll an interval")
				l.offset.Add(-int64(jump))
				pass(10*time.Minute + time.Second)
				l.Registry.Counts()
				pass(12 * time.Hour)
				assert.Equal(t, 1, l.Registry.Counts().Heads, "also when it jumps back again")
			})
		})
	}
}

func TestLoopEndsBetweenSteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.Node.PutTemplate("other.yaml", podYAML("other", "velum="+velum+":4.0.0"))
		l.Node.OnStage = func(ctx context.Context, _ release.Release) error {
			l.stop()
			synctest.Wait()
			return nil // the step that has begun is finished
		}
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, <-l.ended)
		assert.Empty(t, l.Node.PodManifest("velum.yaml"), "the next step is not begun")
		assert.True(t, image(s, "velum.yaml", "velum").Staged)
		assert.Contains(t, l.Disk.JSON(), `"lastCheck"`, "what was learnt is kept")

		_, err = l.Check(t.Context(), nil)
		require.Error(t, err, "a request after the end fails")
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.ErrorIs(t, err, agent.ErrEnded)
	})
}

func TestLoopReportsAFailedObservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		l.Node.Blind(assert.AnError)
		_, err := l.Check(t.Context(), nil)
		require.ErrorIs(t, err, assert.AnError)
		assert.Equal(t, status.StateFailed, l.Status().State)
		assert.Contains(t, l.Status().Reason, assert.AnError.Error())
		l.Node.Blind(nil)
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, status.StateCurrent, s.State)
	})
}

// The least time between two retries is not counted by a clock that was wrong.
func TestLoopRetriesAfterTheClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, time.Minute)
		defer l.end()
		l.Registry.Down(assert.AnError)
		pass(time.Hour)
		require.NotZero(t, l.Status().Sources[0].Failures)
		l.offset.Store(-int64(1000 * time.Hour))
		l.Registry.Down(nil)
		pass(5 * time.Minute)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}
