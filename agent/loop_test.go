// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// manager is the service manager of a test.
type manager struct {
	mu   sync.Mutex
	said string
	turn time.Time // time of the last heartbeat
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

// looped is a node whose loop runs in a synctest bubble, on the bubble's clock plus an offset that a test may change.
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

// start starts a daemon on the node; it may be called again.
func start(t *testing.T, w *world, interval, wake time.Duration) *looped {
	t.Helper()
	return startAgent(t, w, w.Agent(), interval, wake)
}

// startAgent starts a daemon with an agent.
func startAgent(t *testing.T, w *world, a *agent.Agent, interval, wake time.Duration) *looped {
	t.Helper()
	l := &looped{world: w, manager: &manager{}, ended: make(chan error, 1)}
	a.Now = l.now
	l.Loop = agent.NewLoop(a, l.manager, interval, wake, "machine")
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	go func() { l.ended <- l.Run(ctx) }()
	t.Cleanup(l.end)
	synctest.Wait()
	return l
}

// end stops the loop and asserts that it returns no error; every test ends with it.
func (l *looped) end() {
	if l.ended == nil {
		return // the test has already ended it
	}
	l.stop()
	require.NoError(l.t, <-l.ended)
	l.ended = nil
}

// checks asks all sources.
func (l *looped) checks() status.Status {
	l.t.Helper()
	s, err := l.Check(l.t.Context(), nil)
	require.NoError(l.t, err)
	return s
}

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time
	synctest.Wait()
}

// run runs a case in a bubble of its own.
func run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// parallel runs a case in parallel with others.
func parallel(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
}

// bubble runs a test under simulated time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func TestLoopPollsInItsSlotAndNamesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
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

// A node that has never polled does so within ten minutes, at its own moment; a node that has polled does not, however
// often the daemon starts.
func TestLoopPollsANewNodeSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		assert.Zero(t, l.Registry.Counts(), "not at the start")
		first := policy.NextSlot(l.now(), 10*time.Minute, "machine")
		assert.Equal(t, first, *l.Status().NextCheck)
		assert.Equal(t, status.StateUnchecked, l.Status().State, "never asked is neither current nor held")
		assert.Equal(t, "no registry has been asked yet for velum.yaml", l.Status().Reason)
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
		pass(3 * 24 * time.Hour)
		assert.Zero(t, l.Registry.Counts())
		assert.Nil(t, l.Status().NextCheck)
		l.Registry.Down(refuses(503, time.Time{}))
		assert.NotNil(t, l.checks().LastCheck, "but a person may ask")
		l.Registry.Counts()
		pass(3 * 24 * time.Hour)
		assert.Zero(t, l.Registry.Counts(), "nor does it retry")
		assert.Nil(t, l.Status().NextCheck)
	})
}

func TestLoopObservesEveryTenMinutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.checks()
		l.Node.PutTemplate("velum.yaml", append([]byte("# a comment\n"), podYAML("velum", "velum="+velum+":4.0.0")...))
		pass(10*time.Minute + time.Second)
		assert.Contains(t, l.Node.PodManifest("velum.yaml"), "# a comment")
	})
}

func TestLoopSendsHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 30*time.Second)
		pass(24 * time.Hour)
		l.manager.mu.Lock()
		defer l.manager.mu.Unlock()
		assert.LessOrEqual(t, l.manager.gap, 30*time.Second)
	})
}

func TestLoopSerializesRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
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
		l.checks()
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.checks()
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
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("unknown")}, nil)
		require.ErrorIs(t, err, plan.ErrUnknownImage)
		assert.Equal(t, status.StateCurrent, l.Status().State, "not applying any more")
	})
}

func TestLoopReloadsItsConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.checks()
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
		run(t, name, func(t *testing.T) {
			l := loop(t, 12*time.Hour, 0)
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
		s := l.checks()
		l.end()
		assert.Empty(t, l.Node.PodManifest("velum.yaml"), "the next step is not begun")
		assert.True(t, image(s, "velum.yaml", "velum").Staged)
		assert.Contains(t, l.Disk.JSON(), `"lastCheck"`, "what was learnt is kept")

		_, err := l.Check(t.Context(), nil)
		require.Error(t, err, "a request after the end fails")
		_, err = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.ErrorIs(t, err, agent.ErrEnded)
	})
}

func TestLoopReportsAFailedObservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.Node.Blind(assert.AnError)
		_, err := l.Check(t.Context(), nil)
		require.ErrorIs(t, err, assert.AnError)
		assert.Equal(t, status.StateFailed, l.Status().State)
		assert.Contains(t, l.Status().Reason, assert.AnError.Error())
		l.Node.Blind(nil)
		s := l.checks()
		assert.Equal(t, status.StateCurrent, s.State)
	})
}

// The minimum time between two retries does not depend on a clock that was wrong.
func TestLoopRetriesAfterTheClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, time.Minute)
		l.Registry.Down(assert.AnError)
		pass(time.Hour)
		require.NotZero(t, l.Status().Sources[0].Failures)
		l.offset.Store(-int64(1000 * time.Hour))
		l.Registry.Down(nil)
		pass(5 * time.Minute)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}

// watched collects the states seen by a client that waits for each change.
func watched(l *looped) (states func() []status.State, stop func()) {
	var seen []status.State
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			changed := l.Changed()
			if s := l.Status().State; len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
			select {
			case <-changed:
			case <-end:
				return
			}
		}
	}()
	stop = func() { close(end); <-ended }
	return func() []status.State { synctest.Wait(); return seen }, stop
}

// A watching client sees the states of another client's apply.
func TestLoopReportsEachChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.checks()
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.Node.Sync()
		states, stop := watched(l)
		defer stop()
		assert.Equal(t, []status.State{status.StateCurrent}, states())
		l.checks()
		assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged}, states())
		l.Node.SetKubelet(false)
		go func() {
			pass(3 * time.Second)
			assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged, status.StateApplying}, states())
			l.Node.Sync()
		}()
		out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		assert.Equal(t, []status.State{status.StateCurrent, status.StateStaged, status.StateApplying, status.StateCurrent}, states())
	})
}

// Frequent progress wakes only its listeners.
func TestLoopReportsProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		var phases []string
		changed := l.Changed()
		var activities []status.Activity
		stop := l.Listen(func(p status.Progress) {
			phases = append(phases, p.Phase)
			if isClosed(changed) {
				changed = l.Changed()
				activities = append(activities, l.Status().Activity)
			}
		})
		assert.Equal(t, status.ActivityNone, l.Status().Activity)
		l.checks()
		assert.Contains(t, phases, "done")
		assert.Equal(t, []status.Activity{status.ActivityChecking}, activities, "the activity changes, and nothing else")
		assert.Equal(t, status.ActivityNone, l.Status().Activity, "the work is done")
		assert.True(t, isClosed(changed), "the check itself is a change")
		stop()
		heard := len(phases)
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.checks()
		assert.Len(t, phases, heard, "who has stopped hears nothing")
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// On a node that has polled before, a new pod waits for its first poll no longer than on a new node, and the other
// images are not polled again.
func TestLoopPollsForANewPodSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, 0)
		pass(10 * time.Minute)
		require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		slot := *l.Status().NextCheck
		l.Registry.Counts()
		l.Registry.Release(mariadb, "1.0.0", 1, "1.1")
		l.Node.PutTemplate("mariadb.yaml", podYAML("mariadb", "mariadb="+mariadb+":1.0.0-rev1"))
		pass(10 * time.Minute)
		s := l.Status()
		require.Equal(t, status.StateUnchecked, s.State, s.Reason)
		assert.Equal(t, "no registry has been asked yet for mariadb.yaml", s.Reason)
		assert.Equal(t, policy.NextSlot(l.now(), 10*time.Minute, "machine"), *s.NextCheck)
		assert.Zero(t, l.Registry.Counts(), "observing the node asks no source")
		pass(10 * time.Minute)
		s = l.Status()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.NotEmpty(t, image(s, "mariadb.yaml", "mariadb").Host)
		assert.Equal(t, slot, *s.NextCheck)
		counts := l.Registry.Counts()
		assert.Equal(t, 1, counts.Lists, "of mariadb alone")
		pass(slot.Sub(l.now()) - time.Second)
		assert.Zero(t, l.Registry.Counts())
	})
}

// If the clock was set back, the first poll does not move as far away.
func TestLoopPollsANewNodeSoonAfterTheClockWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 12*time.Hour, time.Minute)
		l.offset.Store(-int64(1000 * time.Hour))
		pass(11 * time.Minute)
		assert.Equal(t, 1, l.Registry.Counts().Lists)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}

// A poll that the end of the daemon interrupted does not count as a check.
func TestPollInterruptedByShutdownIsNotACheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.restart()
	ctx, stop := context.WithCancel(t.Context())
	w.Registry.OnAsk = func(string, string) { stop() }
	s, _ := w.agent.Cycle(ctx, source.PollAll)
	assert.Nil(t, s.LastCheck)
	assert.NotContains(t, w.Disk.JSON(), "lastCheck")
}

// slowly lets a test's time pass during remote calls.
func slowly(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time

// slowPulls is a runtime whose pulls take a while.
type slowPulls struct{ *agenttest.Node }

func (s slowPulls) Pull(ctx context.Context, ref release.Reference) (digest.Digest, error) {
	slowly(10 * time.Minute)
	return s.Node.Pull(ctx, ref)
}

// slowKeys is a verifier that takes a while.
type slowKeys struct{ *agenttest.Verifier }

func (s slowKeys) Verify(ctx context.Context, r release.Release) (string, error) {
	slowly(4 * time.Minute)
	return s.Verifier.Verify(ctx, r)
}

// The loop sends heartbeats while remote calls block: systemd kills a daemon that is silent for
// three minutes, and checks each 90 s.
func TestHeartbeatsContinueDuringRemoteCalls(t *testing.T) {
	t.Parallel()
	for slow, arrange := range map[string]func(w *world){
		"nine tags, each half a minute": func(w *world) {
			for n := range 9 {
				w.Registry.Publish(velum, fmt.Sprintf("4.0.0-rev%d", n+1))
			}
			w.Registry.OnAsk = func(string, string) { slowly(29 * time.Second) }
		},
		"a tag list": func(w *world) {
			w.Registry.OnAsk = func(what, _ string) {
				if what == "tags" {
					slowly(4*time.Minute + 50*time.Second)
				}
			}
		},
		"a staging": func(w *world) {
			w.Node.OnStage = func(context.Context, release.Release) error { slowly(50 * time.Minute); return nil }
		},
		"a second reading": func(w *world) {
			w.Policy.ConfirmAfter = time.Hour
			w.restart()
		},
		"a pull in kubelet's name": func(w *world) {
			w.Policy.PullPolicy = "IfNotPresent"
			w.restart()
			w.agent.Pods = slowPulls{w.Node}
		},
		"a signature": func(w *world) {
			w.Policy.Rule = func(string) policy.Rule {
				return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesWarn}
			}
			w.restart()
			w.agent.Verifier = slowKeys{agenttest.NewVerifier("sha256:ours")}
		},
	} {
		run(t, slow, func(t *testing.T) {
			w, _ := running(t)
			arrange(w)
			w.Registry.Release(velum, "4.0.0", 2, "1.2")
			began := time.Now()
			gap, last := time.Duration(0), began
			w.agent.Progress = func(status.Progress) { gap, last = max(gap, time.Since(last)), time.Now() }
			w.check()
			w.apply()
			require.Greater(t, time.Since(began), 3*time.Minute, "it was slow")
			assert.LessOrEqual(t, max(gap, time.Since(last)), 45*time.Second)
		})
	}
}

// An error "canceled" from the runtime does not end the daemon: it counts as any other failure.
func TestForeignCancellationIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		l.checks()
		l.Node.Blind(context.Canceled)
		_, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.Error(t, err)
		assert.Equal(t, status.StateFailed, l.Status().State)
		assert.NotEmpty(t, l.Status().Reason)
	})
}

// slowRuntime is a runtime that lists pods slowly.
type slowRuntime struct {
	*agenttest.Node
	slow atomic.Bool
}

func (s *slowRuntime) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if s.slow.Load() {
		slowly(time.Minute)
	}
	return s.Node.Containers(ctx)
}

// A slow observation after an apply does not report the apply's last progress again.
func TestSlowObservationAfterAnApplyIsNotApplying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		runtime := &slowRuntime{Node: l.Node}
		l.agent.Pods = runtime
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.checks()
		_, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")}, nil)
		require.NoError(t, err)
		pass(10 * time.Second)
		require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		runtime.slow.Store(true)
		for range 20 * 60 {
			pass(time.Second)
			require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		}
	})
}

// A poll in whose slot the node cannot be observed asks nothing, and is repeated soon, not an interval later.
func TestLoopRepeatsAPollThatCouldNotObserve(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(l *looped){
		"nothing else happens": func(*looped) {},
		"the configuration is reloaded meanwhile": func(l *looped) {
			a := l.Agent()
			a.Now = l.now
			require.NoError(l.t, l.Reconfigure(l.t.Context(), a, 12*time.Hour))
		},
	} {
		run(t, name, func(t *testing.T) {
			l := loop(t, 12*time.Hour, 0)
			pass(10 * time.Minute)
			slot := *l.Status().NextCheck
			pass(slot.Sub(l.now()) - time.Second)
			l.Node.Blind(assert.AnError)
			l.Registry.Counts()
			pass(time.Minute)
			meanwhile(l)
			l.Node.Blind(nil)
			assert.Zero(t, l.Registry.Counts())
			pass(2 * time.Minute)
			assert.Equal(t, 1, l.Registry.Counts().Heads)
			assert.Equal(t, slot.Add(12*time.Hour), *l.Status().NextCheck)
			pass(12 * time.Hour)
			assert.Equal(t, 1, l.Registry.Counts().Heads, "once an interval")
		})
	}
}

// A reload that waited for an apply in the slot of the poll does not move the slot, unless polls are now off.
func TestReloadKeepsAPollThatIsDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interval time.Duration
		heads    int
	}{"the same interval": {12 * time.Hour, 1}, "another interval": {24 * time.Hour, 1}, "no polls": {0, 0}} {
		run(t, name, func(t *testing.T) {
			l := loop(t, 12*time.Hour, 0)
			pass(10 * time.Minute)
			l.Registry.Release(velum, "4.0.0", 1, "1.2")
			l.checks()
			slot := *l.Status().NextCheck
			l.onFirstStop(func() { slowly(slot.Sub(l.now()) + time.Minute); l.Registry.Counts() })
			go func() { _, _ = l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil) }()
			synctest.Wait()
			a := l.Agent()
			a.Now = l.now
			require.NoError(t, l.Reconfigure(t.Context(), a, c.interval))
			require.False(t, l.now().Before(slot))
			pass(time.Minute)
			assert.Equal(t, c.heads, l.Registry.Counts().Heads)
			l.end()
		})
	}
}
