// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A failed pod, a hold or an unreachable registry does not hide the pods that wait for approval.
func TestPodsWaitingForApprovalAreReportedInEveryState(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(t *testing.T, w *world, web release.Release)
		state  status.State
	}{
		"a pod was rolled back": {func(t *testing.T, w *world, web release.Release) {
			t.Helper()
			w.Node.Crash(web.Digest, true)
			out, _ := w.apply("velum.yaml")
			require.Equal(t, status.ResultFailed, out[0].Result)
			w.observe()
		}, status.StateFailed},
		"another pod is held": {func(t *testing.T, w *world, _ release.Release) {
			t.Helper()
			_, _, err := w.agent.Hold(t.Context(), []string{"velum.yaml"}, false, record.PersonHold{})
			require.NoError(t, err)
		}, status.StateHeld},
		"the registry is away": {func(_ *testing.T, w *world, _ release.Release) {
			w.Registry.Down(agenttest.ErrRefused)
			w.check()
		}, status.StateStale},
		"a tag is gone": {func(_ *testing.T, w *world, _ release.Release) {
			w.Node.PutPodManifest("other.yaml", podYAML("other", "other="+etcd+":9"))
			w.check()
		}, status.StateFailed},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
			w.check()
			w.Registry.Release(mariadb, "10.0", 2, "2.1")
			web := w.publish(2, "2.1")
			c.breaks(t, w, web)
			s := w.observe()
			require.Equal(t, c.state, s.State, s.Reason)
			assert.Contains(t, s.Reason, "waiting for approval: db.yaml (revision)")
			last := s.Reasons[len(s.Reasons)-1]
			assert.Equal(t, status.KindApproval, last.Kind)
			for _, f := range s.Failures {
				assert.NotEqual(t, status.KindApproval, f.Kind, "it is no failure")
			}
			assert.NotContains(t, s.Reason, "waiting for approval: velum.yaml")
		})
	}
}

// A tag that was never seen is reported as not found; a tag that existed is gone, even if only the node has seen it.
func TestOnlyAKnownTagIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutPodManifest("seen.yaml", podYAML("seen", "main="+velum+":4.0.0-rev1"))
	w.Node.PutPodManifest("typo.yaml", podYAML("typo", "main="+velum+":4.0.0-rev9"))
	w.check()
	w.Registry.Retract(velum, "4.0.0-rev1")
	s := w.check()
	require.Equal(t, status.StateFailed, s.State)
	kinds := map[string]status.Kind{}
	for _, r := range s.Reasons {
		kinds[r.PodManifest] = r.Kind
	}
	assert.Equal(t, map[string]status.Kind{"seen.yaml": status.KindTagGone, "typo.yaml": status.KindTagNotFound}, kinds, s.Reason)
	w.Disk.Lose()
	w.restart()
	s = w.check()
	for _, r := range s.Reasons {
		if r.PodManifest == "seen.yaml" && len(w.Node.Names(first.Digest)) > 0 {
			assert.Equal(t, status.KindTagGone, r.Kind, "the node has it by that tag: "+s.Reason)
		}
	}
}

// A host that is not asked is not said to be asked.
func TestACheckReportsWhatItAsks(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	asking := 0
	w.agent.Progress = func(p status.Progress) {
		if p.Phase == status.PhaseAsking || p.Ended == status.PhaseAsking {
			asking++
		}
	}
	w.cycle(source.PollAll)
	assert.Equal(t, 2, asking, "begun and done")
	w.Registry.Down(&release.SourceError{Repository: velum, Host: "r", Unasked: true, Err: errors.New("asked to wait")})
	w.cycle(source.PollAll)
	assert.Equal(t, 2, asking)
	w.Registry.Down(refuses(503, w.Clock.Now().Add(time.Hour)))
	w.cycle(source.PollAll)
	assert.Equal(t, 4, asking)
}

// A person's request asks the registry again, whatever it answered before.
func TestPeopleRetryHostsThatWait(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	p := &pacer{}
	w.agent.Pacer = p
	w.poll()
	assert.Zero(t, p.tries, "a poll leaves them alone")
	w.check()
	assert.Equal(t, 1, p.tries)
	_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	assert.Equal(t, 2, p.tries)
}

// During the apply of one pod, the others still wait.
func TestWaitingPodsAreReportedDuringAnotherApply(t *testing.T) {
	const others = "applying what was approved; waiting for approval: db.yaml (revision)"
	for name, c := range map[string]struct {
		which plan.Which
		want  string
	}{
		"a pod manifest": {plan.Named("velum.yaml"), others},
		"a repository":   {plan.Named("velum"), others},
		"all":            {plan.All(), "applying what was approved"},
	} {
		run(t, name, func(t *testing.T) {
			l := loop(t, 0, 0)
			l.Registry.Release(mariadb, "10.0", 1, "1.1")
			l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
			l.checks()
			l.Registry.Release(velum, "4.0.0", 1, "1.2")
			l.Registry.Release(mariadb, "10.0", 2, "2.1")
			l.Node.Sync()
			s := l.checks()
			require.Equal(t, "waiting for approval: db.yaml (revision), velum.yaml (rebuild)", s.Reason)
			l.Node.SetKubelet(false)
			go func() {
				pass(3 * time.Second)
				assert.Equal(t, status.StateApplying, l.Status().State)
				assert.Equal(t, c.want, l.Status().Reason)
				l.Node.SetKubelet(true)
				l.Node.Sync()
			}()
			_, err := l.Apply(t.Context(), agent.ApplyRequest{Which: c.which}, nil)
			require.NoError(t, err)
		})
	}
}

// alice is a person with a known name.
func alice() status.Actor {
	return status.Actor{Kind: status.ByPerson, Via: status.ViaBus, UID: new(uint32(1000)), User: "alice"}
}

// asAlice approves all offers as alice.
func (w *world) asAlice() []status.Outcome {
	w.t.Helper()
	out, _, err := w.agent.Apply(status.WithActor(w.t.Context(), alice()), agent.ApplyRequest{Which: plan.All()})
	require.NoError(w.t, err)
	return out
}

// backAsAlice rolls velum back as alice.
func (w *world) backAsAlice() {
	w.t.Helper()
	_, _, err := w.agent.Rollback(status.WithActor(w.t.Context(), alice()), plan.Named("velum"))
	require.NoError(w.t, err)
}

// past returns the history after a restart, with the test's names for its entries.
func (w *world) past() []string {
	w.t.Helper()
	w.restart()
	out := []string{}
	for _, e := range w.observe().History {
		assert.False(w.t, e.At.IsZero())
		out = append(out, fmt.Sprintf("%s %s/%s %s: %s -> %s by %s %s",
			e.Result, e.PodManifest, e.Container, e.Change, e.From, e.To, e.By, e.Cause))
	}
	return out
}

func TestHistoryNamesWhoApprovedAnApply(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	assert.Empty(t, w.check().History, "a node that was never changed")

	w.asAlice()

	assert.Equal(t, []string{
		"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by alice (uid 1000, bus) ",
	}, w.past())
	entry := w.observe().History[0]
	assert.Equal(t, second.Digest, entry.Digest)
	assert.Equal(t, velum, entry.Image)
	assert.Equal(t, w.Clock.Now().UTC(), entry.At)
	assert.Contains(t, log.String(), `msg=approved file=velum.yaml change=rebuild by="alice (uid 1000, bus)"`)
}

func TestHistoryNamesModeAuto(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := auto(t)
		log := &bytes.Buffer{}
		w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.at(2)
		w.check()
		assert.Equal(t, []string{
			"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by mode auto ",
		}, w.past())
		assert.Contains(t, log.String(), `msg=approved`)
		assert.Contains(t, log.String(), `by="mode auto"`)
	})
}

// The history has each event, the newest first, and who caused it.
func TestHistory(t *testing.T) {
	const (
		rebuild  = "velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by "
		returned = "velum.yaml/velum rollback: 4.0.0-rev1-build1.2 -> 4.0.0-rev1-build1.1 by "
		byAlice  = "alice (uid 1000, bus) "
	)
	for name, c := range map[string]struct {
		do   func(w *world, first release.Release)
		want []string
	}{
		"a failure and its rollback": {func(w *world, _ release.Release) {
			w.bad(1, "1.2")
			w.asAlice()
			assert.Contains(w.t, w.observe().History[1].Reason, "velum is not running (exit code 1)")
		}, []string{"rolled back " + returned + "agent not-up", "failed " + rebuild + byAlice + "not-up"}},
		"a person's rollback": {func(w *world, _ release.Release) {
			w.publish(1, "1.2")
			w.apply()
			w.backAsAlice()
		}, []string{"rolled back " + returned + byAlice, "applied " + rebuild + "person "}},
		"a person's rollback that failed": {func(w *world, first release.Release) {
			w.publish(1, "1.2")
			w.apply()
			w.Node.Crash(first.Digest, true)
			w.backAsAlice()
		}, []string{"failed " + returned + byAlice + "not-up", "applied " + rebuild + "person "}},
		"kubelet picked it up": {func(w *world, _ release.Release) {
			w.Registry.Release(velum, "4.0.0", 1, "1.2")
			w.Node.Restart("velum.yaml", "velum")
			w.poll()
		}, []string{"picked up " + strings.Replace(rebuild, "rebuild", "", 1) + "kubelet "}},
		"the daemon died during the apply": {func(w *world, _ release.Release) {
			w.publish(1, "1.2")
			ctx, kill := w.killable()
			w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
			w.applyWith(status.WithActor(ctx, alice()))
			w.Node.OnStop = nil
		}, []string{"applied " + rebuild + byAlice}},
	} {
		run(t, name, func(t *testing.T) {
			w, first := running(t)
			c.do(w, first)
			assert.Equal(t, c.want, w.past())
			w.observe()
			assert.Len(t, w.observe().History, len(c.want), "an observation adds nothing")
		})
	}
}

// A pod has an entry for each container whose release changed.
func TestHistoryOmitsUnchangedContainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0", "b="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	w.publish(1, "1.2")
	w.apply()
	past := w.past()
	require.Len(t, past, 2)
	assert.Contains(t, past[0], "velum.yaml/a")
	assert.Contains(t, past[1], "velum.yaml/b")
}

// The journal has a line for each poll, even without a result, and none for an observation.
func TestEachPollIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	w.observe()
	assert.Empty(t, log.String())
	w.poll()
	assert.Regexp(t, `^time=\S+ level=INFO msg=polled cycle=\d+ sources=1 unanswered=0 updates=0 state=current next=never\n$`, log.String())
	log.Reset()
	w.Registry.Down(agenttest.ErrRefused)
	w.check()
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("msg=polled")))
	assert.Contains(t, log.String(), "unanswered=1 updates=0 state=stale")
}

// A password in an error of any origin is removed: in the status, its JSON, and the grain.
func TestStatusHasNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Down(errors.New(`parse "https://user:hunter2%zz@mirror.example.com": invalid URL escape "%zz"`))
		s := w.check()
		assert.Equal(t, status.StateStale, s.State)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		assert.Contains(t, string(text), "mirror.example.com")
		assert.NotContains(t, string(text), "hunter2")
		w.Node.OnStop = func(string) error { return errors.New("hook: password=hunter2") }
		w.Registry.Down(nil)
		w.publish(1, "1.2")
		_, s = w.apply()
		text, err = json.Marshal(s)
		require.NoError(t, err)
		assert.Contains(t, string(text), "hook: ")
		assert.NotContains(t, string(text), "hunter2")
	})
}

// counted is an agent.Meter that records its calls.
type counted struct {
	mu       sync.Mutex
	turns    int
	staged   []error
	restarts []apply.Measured
}

func (c *counted) lock() func() { c.mu.Lock(); return c.mu.Unlock }

func (c *counted) CycleDone() {
	defer c.lock()()
	c.turns++
}

func (*counted) Failed(string, release.Cause) {}

func (c *counted) Staged(err error) {
	defer c.lock()()
	c.staged = append(c.staged, err)
}

func (c *counted) Restarted(r apply.Measured) {
	defer c.lock()()
	c.restarts = append(c.restarts, r)
}

func TestRestartsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle, w.Policy.Forgets = 5*time.Second, apply.KubeletForgets
		w.restart()
		c := &counted{}
		w.agent.Meter = c
		w.bad(2, "2.1")
		assert.Equal(t, []error{nil}, c.staged)
		w.apply()
		require.Len(t, c.restarts, 2)
		assert.Equal(t, status.ResultFailed, c.restarts[0].Result)
		assert.GreaterOrEqual(t, c.restarts[0].Took, w.Policy.ApplyTimeout)
		assert.Zero(t, c.restarts[0].Up)
		back := c.restarts[1]
		assert.True(t, back.Back)
		assert.False(t, back.ByHand)
		assert.Equal(t, status.ResultRolledBack, back.Result)
		assert.GreaterOrEqual(t, back.Up, apply.KubeletForgets)
		assert.Less(t, back.Took, w.Policy.ApplyTimeout)

		w.publish(3, "3.1")
		w.apply()
		w.rollback()
		require.Len(t, c.restarts, 4)
		r := c.restarts[2]
		assert.Equal(t, status.ResultApplied, r.Result)
		assert.False(t, r.Back)
		assert.GreaterOrEqual(t, r.Up, apply.KubeletForgets)
		assert.GreaterOrEqual(t, r.Took, r.Up+w.Policy.Settle)
		assert.Less(t, r.Up, w.Policy.Settle, "the time in which it is verified healthy is no time in which it is down")
		assert.True(t, c.restarts[3].Back)
		assert.True(t, c.restarts[3].ByHand)
	})
}

func TestCyclesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, w := &counted{}, newWorld(t)
		first, next := w.Agent(), w.Agent()
		first.Meter, next.Meter = c, c
		l := startAgent(t, w, first, time.Hour, 0)
		l.checks()
		synctest.Wait()
		assert.Equal(t, 2, c.turns, "the look at the start, and the check")
		next.Now = l.now
		require.NoError(t, l.Reconfigure(t.Context(), next, time.Hour))
		synctest.Wait()
		assert.Equal(t, 3, c.turns)
	})
}
