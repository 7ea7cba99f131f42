// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

const dex = "registry.suse.com/caasp/v4/caasp-dex"

// hanging is a source that does not answer for one repository until its caller cancels.
type hanging struct {
	source.Source
	mu         sync.Mutex
	repository string
	asked      []string      // in order
	freed      chan struct{} // closed to end the hang; nil: never
}

func (h *hanging) hangs(repository string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repository = repository
}

// questions returns the repositories asked since the last call, in order.
func (h *hanging) questions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.asked
	h.asked = nil
	return asked
}

// ask records a question and returns whether it hangs.
func (h *hanging) ask(repository string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, repository)
	return repository == h.repository
}

func (h *hanging) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	if h.ask(ref.Repository) {
		select {
		case <-ctx.Done():
			return release.Resolved{}, ctx.Err()
		case <-h.freed:
		}
	}
	return h.Source.Resolve(ctx, ref)
}

// neighbours is a node with three pods, one of which can be rolled back, and a loop that does not poll on its own. The
// pull of dex lasts as long as pull.
type neighbours struct {
	*looped
	source *hanging
	mu     sync.Mutex
	pull   func(ctx context.Context) error
}

func (n *neighbours) pulls(pull func(ctx context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pull = pull
}

func neighbourhood(t *testing.T) *neighbours {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	for file, repository := range map[string]string{"velum.yaml": velum, "db.yaml": mariadb, "dex.yaml": dex} {
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		w.Node.PutTemplate(file, podYAML(file[:len(file)-len(".yaml")], "main="+repository+":4.0.0"))
	}
	n := &neighbours{source: &hanging{Source: w.Registry}}
	l := startAgent(t, w, n.configured(w), 0, 0)
	n.looped = l
	l.checks()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.Sync()
	l.checks()
	out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum.yaml")}, nil)
	require.NoError(t, err)
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.Node.OnStage = func(ctx context.Context, r release.Release) error {
		n.mu.Lock()
		pull := n.pull
		n.mu.Unlock()
		if r.Repository == dex && pull != nil {
			return pull(ctx)
		}
		return nil
	}
	return n
}

// configured returns an agent built from the configuration.
func (n *neighbours) configured(w *world) *agent.Agent {
	a := w.Agent()
	a.Source, a.Now = n.source, time.Now
	return a
}

// endless is a pull that ends only with its context.
func endless(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// requests are people's requests, by their word in the status.
func (n *neighbours) requests(t *testing.T) map[string]func() error {
	t.Helper()
	return map[string]func() error{
		"rollback": func() error {
			out, err := n.Rollback(t.Context(), plan.Named("velum.yaml"), nil)
			if err == nil && out[0].Result != status.ResultRolledBack {
				err = errors.New(out[0].Reason)
			}
			return err
		},
		"hold": func() error {
			_, err := n.Hold(t.Context(), []string{"velum.yaml"}, false, "", time.Time{})
			return err
		},
		"resume": func() error { _, err := n.Resume(t.Context(), nil, true); return err },
		"reload": func() error { return n.Reconfigure(t.Context(), n.configured(n.world), 0) },
		"apply": func() error {
			_, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("db.yaml")}, nil)
			return err
		},
	}
}

// written returns a channel with the time at which a pod manifest changes.
func (n *neighbours) written(file string) chan time.Time {
	at, was := make(chan time.Time, 1), n.Node.PodManifest(file)
	go func() {
		for n.Node.PodManifest(file) == was || n.Node.PodManifest(file) == "" {
			slowly(10 * time.Millisecond)
		}
		at <- time.Now()
	}()
	return at
}

// asks starts a check request.
func (n *neighbours) asks(t *testing.T) (answer chan status.Status) {
	t.Helper()
	answer = make(chan status.Status, 1)
	go func() {
		s, err := n.Check(t.Context(), nil)
		assert.NoError(t, err)
		answer <- s
	}()
	synctest.Wait()
	return answer
}

// A request interrupts an endless pull of another pod's image and a registry that does not
// answer. The interrupted work continues afterwards.
func TestRequestsInterruptAPoll(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"rollback", "hold", "resume", "reload", "apply"} {
		for _, work := range []string{"staging", "poll"} {
			run(t, verb+" under a "+work, func(t *testing.T) {
				n := neighbourhood(t)
				next := n.Registry.Release(dex, "4.0.0", 1, "1.2")
				if work == "poll" {
					n.source.hangs(dex)
				} else {
					n.pulls(endless)
				}
				failures := n.Status().Sources
				answer := n.asks(t)
				pass(time.Hour) // no request interrupts it
				began := time.Now()

				require.NoError(t, n.requests(t)[verb]())

				if verb != "rollback" { // its restart and health check take a while
					assert.LessOrEqual(t, time.Since(began), 2*time.Second)
				}
				s := n.Status()
				require.NotNil(t, s.Interrupted)
				assert.Equal(t, work, s.Interrupted.Work)
				assert.Equal(t, verb, s.Interrupted.For)
				assert.WithinDuration(t, began, s.Interrupted.At, 2*time.Second)
				for _, source := range s.Sources {
					assert.Zero(t, source.Failures, source.Repository)
					assert.Empty(t, source.Error)
				}
				if work == "poll" {
					assert.Len(t, s.Sources, len(failures))
				}
				synctest.Wait()
				select {
				case s := <-answer:
					t.Fatalf("the check has ended: %s", s.Reason)
				default:
				}
				n.pulls(nil)
				n.source.hangs("")
				_, err := n.Hold(t.Context(), []string{"db.yaml"}, false, "", time.Time{}) // it begins again
				require.NoError(t, err)
				s = <-answer
				assert.Nil(t, s.Interrupted)
				assert.Nil(t, n.Status().Interrupted)
				assert.Equal(t, next.Digest, image(s, "dex.yaml", "main").Offered.Digest)
				assert.True(t, image(s, "dex.yaml", "main").Staged)
			})
		}
	}
}

// A health check of a release that kubelet picked up only observes: a request interrupts it, and it begins again.
func TestRequestsInterruptAHealthCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Policy.Settle = 10 * time.Minute
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 0))
		next := n.Registry.Release(dex, "4.0.0", 1, "1.2")
		<-n.asks(t)
		n.Node.Restart("dex.yaml", "main")
		answer := n.asks(t)
		pass(time.Minute)
		began := time.Now()

		require.NoError(t, n.requests(t)["hold"]())

		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.NotNil(t, n.Status().Interrupted)
		assert.Equal(t, "health check", n.Status().Interrupted.Work)
		s := <-answer
		assert.Equal(t, next.Digest, image(s, "dex.yaml", "main").LastKnownGood.Digest)
		assert.True(t, image(s, "dex.yaml", "main").PickedUp)
		assert.GreaterOrEqual(t, time.Since(began), 10*time.Minute)
	})
}

// The rollback begins within two seconds even if the request takes longer.
func TestRollbackRequestInterruptsAnEndlessPull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.pulls(endless)
		answer := n.asks(t)
		pass(time.Hour)
		began := time.Now()
		written := n.written("velum.yaml")

		require.NoError(t, n.requests(t)["rollback"]())

		assert.LessOrEqual(t, (<-written).Sub(began), 2*time.Second)
		n.end()
		<-answer
	})
}

// Under continuous requests a pull proceeds, for at least a second between two of them, and a poll gets the answers of
// the sources that respond.
func TestRequestsDoNotStarveThePoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		next := n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		left, pulls := 20*time.Second, 0
		n.pulls(func(ctx context.Context) error { // the pull continues where it was
			began := time.Now()
			pulls++
			select {
			case <-time.After(left):
				return nil
			case <-ctx.Done():
				left -= time.Since(began)
				return ctx.Err()
			}
		})
		n.source.hangs(dex)
		answer := n.asks(t)
		for range 3 {
			require.NoError(t, n.requests(t)["hold"]())
		}
		synctest.Wait()
		n.source.hangs("")
		asked := n.source.questions()
		assert.Equal(t, dex, asked[len(asked)-1], "who does not answer comes last, and the others are not asked again")
		requests := 0
		for ; len(answer) == 0; requests++ {
			began := time.Now()
			require.NoError(t, n.requests(t)["hold"]())
			assert.LessOrEqual(t, time.Since(began), 2*time.Second)
			require.Less(t, requests, 60)
			synctest.Wait()
		}
		s := <-answer
		assert.Equal(t, next.Digest, image(s, "dex.yaml", "main").Offered.Digest)
		assert.True(t, image(s, "dex.yaml", "main").Staged)
		assert.Greater(t, pulls, 5)
	})
}

// An apply waits for its own images, and not for another pod's pull; a rollback comes even before that.
func TestApplyWaitsForItsOwnImagesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		db := n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		n.pulls(endless)
		answer := n.asks(t)
		pass(time.Minute)

		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("db.yaml")}, nil)

		require.NoError(t, err)
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		n.runs("db.yaml", "main", db.Digest)
		assert.Empty(t, answer, "the check goes on")
		_, applied := n.applies(t.Context(), "dex.yaml")
		pass(time.Minute)
		assert.Empty(t, applied, "it pulls")
		require.NoError(t, n.requests(t)["rollback"]())
		n.pulls(nil)
		require.NoError(t, n.requests(t)["hold"]())
		got := <-applied
		require.NoError(t, got.err)
		assert.Equal(t, status.ResultApplied, got.out[0].Result)
		<-answer
	})
}

// The callers of interrupted requests get an error when the daemon ends.
func TestInterruptedCycleEndsWithTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.pulls(endless)
		ended := make(chan error, 1)
		go func() { _, err := n.Check(t.Context(), nil); ended <- err }()
		pass(time.Minute)
		n.Node.SetKubelet(false) // the rollback waits for it
		written := n.written("velum.yaml")
		go func() { <-written; n.stop() }()
		_, err := n.Rollback(t.Context(), plan.Named("velum.yaml"), nil)
		require.NoError(t, err)
		require.ErrorIs(t, <-ended, agent.ErrEnded)
		n.end()
	})
}

// Requests do not wait for an apply by mode auto: a reload answers, and so does the next
// request.
func TestRequestDoesNotWaitForAnAutoApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		db, next := n.Registry.Release(mariadb, "4.0.0", 1, "1.2"), n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.checks()
		n.Policy.Auto, n.Policy.Settle = true, time.Minute
		began := time.Now()
		require.NoError(t, n.requests(t)["reload"]())
		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		pass(30 * time.Second)
		assert.Equal(t, status.StateApplying, n.Status().State)
		began = time.Now()
		require.NoError(t, n.requests(t)["resume"]())
		assert.LessOrEqual(t, time.Since(began), 32*time.Second, "for the pod that is being restarted, and no other")
		pass(3 * time.Minute)
		n.runs("db.yaml", "main", db.Digest)
		n.runs("dex.yaml", "main", next.Digest)
		assert.Equal(t, status.StateCurrent, n.Status().State, n.Status().Reason)
	})
}

// A canceled request interrupts nothing.
func TestCanceledRequestInterruptsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		pulls := 0
		n.pull = func(ctx context.Context) error { pulls++; return endless(ctx) }
		answer := n.asks(t)
		require.NoError(t, n.requests(t)["hold"]())
		synctest.Wait()
		require.Equal(t, 2, pulls, "it goes on, and is left alone for a second")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for range 2 {
			go func() {
				_, err := n.Resume(ctx, nil, true)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}()
		}
		pass(time.Minute)
		assert.Equal(t, 2, pulls)
		require.NotNil(t, n.Status().Interrupted)
		assert.Equal(t, "hold", n.Status().Interrupted.For)
		n.end()
		<-answer
	})
}

// A reload drops the answers of an interrupted poll, which is incomplete. Earlier offers stay.
func TestReloadDuringAPollKeepsOffers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		second := n.Registry.Release(velum, "4.0.0", 2, "1.1")
		s := n.checks()
		require.Equal(t, second.Digest, image(s, "velum.yaml", "main").Offered.Digest)
		n.Policy.ListEvery = time.Hour
		n.source.hangs(dex)
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		pass(13 * time.Hour)
		for range 3 { // the hanging repository then comes last
			require.NoError(t, n.requests(t)["hold"]())
			synctest.Wait()
		}
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		n.source.hangs("")
		require.NoError(t, n.requests(t)["resume"]()) // the poll begins again
		pass(time.Minute)
		i := image(n.Status(), "velum.yaml", "main")
		require.NotNil(t, i.Offered, n.Status().Reason)
		assert.Equal(t, second.Digest, i.Offered.Digest)
	})
}

// slowVerifier does not answer until its caller cancels.
type slowVerifier struct {
	stage.Verifier
	away bool
}

func (v *slowVerifier) Verify(ctx context.Context, r release.Release) (string, error) {
	if v.away {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return v.Verifier.Verify(ctx, r)
}

// The registries have answered when a reload interrupts the verification: the resumed check uses the answers and does
// not ask again.
func TestReloadDuringVerificationKeepsAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		v := &slowVerifier{Verifier: agenttest.NewVerifier("sha256:ours")}
		n.Verifier = v
		n.Policy.Rule = func(string) policy.Rule {
			return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesWarn}
		}
		require.NoError(t, n.requests(t)["reload"]())
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2") // unsigned
		n.checks()
		next := n.Registry.Release(velum, "4.0.0", 2, "1.1")
		v.away = true
		answer := n.asks(t)
		require.NoError(t, n.requests(t)["reload"]())
		synctest.Wait()
		v.away = false
		require.NoError(t, n.requests(t)["reload"]())
		i := image(<-answer, "velum.yaml", "main")
		require.NotNil(t, i.Offered)
		assert.Equal(t, next.Digest, i.Offered.Digest)
	})
}

// heardAgain returns the questions that a check repeats after an interruption.
func (n *neighbours) heardAgain(t *testing.T, interrupt func()) []string {
	t.Helper()
	n.source.hangs(dex)
	answer := n.asks(t)
	require.NoError(t, n.requests(t)["hold"]()) // the hanging repository then comes last
	pass(2 * time.Second)
	n.source.questions()
	interrupt()
	synctest.Wait()
	n.source.hangs("")
	require.NoError(t, n.requests(t)["resume"]())
	<-answer
	return n.source.questions()
}

// Answers of an interrupted poll are valid for ten minutes.
func TestAnswersOfAnInterruptedPollAreReused(t *testing.T) {
	t.Parallel()
	for pull, again := range map[time.Duration]bool{time.Minute: false, 11 * time.Minute: true} {
		run(t, pull.String(), func(t *testing.T) {
			n := neighbourhood(t)
			n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
			n.Node.OnStage = func(context.Context, release.Release) error { return release.ErrHeld }
			n.checks()
			n.Node.OnStage = func(context.Context, release.Release) error { slowly(pull); return nil }
			asked := n.heardAgain(t, func() {
				out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("db.yaml")}, nil)
				require.NoError(t, err)
				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			})
			assert.Equal(t, again, slices.Contains(asked, velum), asked)
		})
	}
}

// A check request asks all sources, also those that an earlier poll has just asked.
func TestCheckAsksMoreThanTheInterruptedPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.source.hangs(dex)
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		pass(13 * time.Hour)
		for range 2 {
			require.NoError(t, n.requests(t)["hold"]())
			pass(2 * time.Second)
		}
		n.source.questions()
		answer := n.asks(t)
		assert.Empty(t, n.source.questions())
		n.source.hangs("")
		require.NoError(t, n.requests(t)["resume"]())
		<-answer
		pass(time.Minute)
		assert.ElementsMatch(t, []string{dex, mariadb, velum}, n.source.questions(), "once: the poll is done with it")
	})
}

// A request's remaining stagings do not replace the poll that it interrupted.
func TestDeferredStepsDoNotEndAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		db := n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		<-n.asks(t)
		n.source.hangs(dex)
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		pass(13 * time.Hour)
		n.Node.Lose(db.Digest)
		next := n.Registry.Release(velum, "4.0.0", 1, "1.3")
		require.NoError(t, n.requests(t)["hold"]())
		synctest.Wait()
		n.source.hangs("")
		require.NoError(t, n.requests(t)["resume"]())
		pass(time.Minute)
		assert.True(t, image(n.Status(), "db.yaml", "main").Staged)
		require.NotNil(t, image(n.Status(), "velum.yaml", "main").Offered)
		assert.Equal(t, next.Digest, image(n.Status(), "velum.yaml", "main").Offered.Digest)
	})
}

// A tag moves while mode auto applies releases: during the poll that follows, and after its interruption, the status is
// that of the applies, which have ended.
func TestPollAfterAMoveIsNotApplying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Policy.Auto, n.Policy.Settle = true, 10*time.Second
		require.NoError(t, n.requests(t)["reload"]())
		db := n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.onFirstStop(func() {
			n.Registry.Release(dex, "4.0.0", 1, "1.3")
			n.pulls(endless)
		})
		answer := n.asks(t)
		pass(time.Minute)
		assert.Equal(t, db.Digest, image(n.Status(), "db.yaml", "main").Running.Digest)
		assert.Equal(t, status.StateHeld, n.Status().State, n.Status().Reason)
		assert.Equal(t, status.ActivityChecking, n.Status().Activity)
		_, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.All(), DryRun: true}, nil)
		require.NoError(t, err)
		pass(time.Minute)
		assert.Equal(t, status.StateHeld, n.Status().State, n.Status().Reason)
		assert.Equal(t, "staging", n.Status().Interrupted.Work)
		n.pulls(nil)
		require.NoError(t, n.requests(t)["hold"]()) // it begins again
		s := <-answer
		assert.Nil(t, s.Interrupted)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}
