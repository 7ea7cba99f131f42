// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"slices"
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
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// A reload drops the answers of an interrupted poll, which has listed only a part. Offers by the
// earlier lists stay.
func TestReloadDuringAPollKeepsOffers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		second := n.Registry.Release(velum, "4.0.0", 2, "1.1")
		s, err := n.Check(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, second.Digest, image(s, "velum.yaml", "main").Offered.Digest)
		n.Policy.ListEvery = time.Hour
		n.source.hangs(dex)
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		pass(13 * time.Hour)
		for range 3 { // who does not answer comes last then
			require.NoError(t, n.requests(t)["hold"]())
			synctest.Wait()
		}
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		n.source.hangs("")
		require.NoError(t, n.requests(t)["unhold"]()) // the poll is begun anew
		pass(time.Minute)
		i := image(n.Status(), "velum.yaml", "main")
		require.NotNil(t, i.Offered, n.Status().Reason)
		assert.Equal(t, second.Digest, i.Offered.Digest)
	})
}

// slowVerifier gives no answer until its caller gives up.
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

// The registries have answered when a reload interrupts the verification: the continued check
// uses the answers and does not ask again.
func TestReloadDuringVerificationKeepsAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		v := &slowVerifier{Verifier: agenttest.NewVerifier("sha256:ours")}
		n.Verifier = v
		n.Policy.Rule = func(string) policy.Rule {
			return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesWarn}
		}
		require.NoError(t, n.requests(t)["reload"]())
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2") // unsigned
		_, err := n.Check(t.Context(), nil)
		require.NoError(t, err)
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

// heardAgain is what a check asks again after an interruption.
func (n *neighbours) heardAgain(t *testing.T, interrupt func()) []string {
	t.Helper()
	n.source.hangs(dex)
	answer := n.asks(t)
	require.NoError(t, n.requests(t)["hold"]()) // who does not answer comes last then
	pass(2 * time.Second)
	n.source.questions()
	interrupt()
	synctest.Wait()
	n.source.hangs("")
	require.NoError(t, n.requests(t)["unhold"]())
	<-answer
	return n.source.questions()
}

// Answers of a poll that was interrupted count for ten minutes.
func TestAnswersOfAnInterruptedPollAreReused(t *testing.T) {
	t.Parallel()
	for pull, again := range map[time.Duration]bool{time.Minute: false, 11 * time.Minute: true} {
		t.Run(pull.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := neighbourhood(t)
				defer n.end()
				n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
				n.Node.OnStage = func(context.Context, release.Release) error { return release.ErrHeld }
				_, err := n.Check(t.Context(), nil)
				require.NoError(t, err)
				n.Node.OnStage = func(context.Context, release.Release) error { slowly(pull); return nil }
				asked := n.heardAgain(t, func() {
					out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("db.yaml")}, nil)
					require.NoError(t, err)
					require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				})
				assert.Equal(t, again, slices.Contains(asked, velum), asked)
			})
		})
	}
}

// A check request asks all sources, also those that a poll has just asked.
func TestCheckAsksMoreThanTheInterruptedPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
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
		require.NoError(t, n.requests(t)["unhold"]())
		<-answer
		pass(time.Minute)
		assert.ElementsMatch(t, []string{dex, mariadb, velum}, n.source.questions(), "once: the poll is done with it")
	})
}

// What a request has left to be staged does not take the place of the poll that it has
// interrupted.
func TestDeferredStepsDoNotEndAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
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
		require.NoError(t, n.requests(t)["unhold"]())
		pass(time.Minute)
		assert.True(t, image(n.Status(), "db.yaml", "main").Staged)
		require.NotNil(t, image(n.Status(), "velum.yaml", "main").Offered)
		assert.Equal(t, next.Digest, image(n.Status(), "velum.yaml", "main").Offered.Digest)
	})
}
