// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// left is what an apply or a rollback tells a caller that has left.
type left struct {
	out []status.Outcome
	err error
}

func (l left) results() map[string]status.Result {
	out := map[string]status.Result{}
	for _, o := range l.out {
		out[o.PodManifest] = o.Result
	}
	return out
}

// applies is an apply by a caller who may leave.
func (n *neighbours) applies(ctx context.Context, files ...string) (leave func(), answer chan left) {
	ctx, leave = context.WithCancel(ctx)
	answer = make(chan left, 1)
	go func() {
		out, err := n.Apply(ctx, agent.ApplyRequest{Which: plan.Named(files...)}, nil)
		answer <- left{out, err}
	}()
	synctest.Wait()
	return leave, answer
}

// settles has each proof take half a minute.
func (n *neighbours) settles(t *testing.T) {
	t.Helper()
	n.Policy.Settle = 30 * time.Second
	require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 0))
}

// offer stages a release of dex and one of mariadb.
func (n *neighbours) offer(t *testing.T) (newDex, newDB release.Release) {
	t.Helper()
	newDex, newDB = n.Registry.Release(dex, "4.0.0", 1, "1.2"), n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
	s, err := n.Check(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	return newDex, newDB
}

// awaitDB waits until what db.yaml runs is as wanted.
func (n *neighbours) awaitDB(is func(digest.Digest) bool) {
	for c, _ := n.Node.Container("db.yaml", "main"); !is(c.Digests[0]); c, _ = n.Node.Container("db.yaml", "main") {
		pass(100 * time.Millisecond)
	}
}

// Ctrl-C while the apply still asks the registry must not restart the pod later.
func TestAnApplyThatHasNotBegunEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		newDex, _ := n.offer(t)
		n.source.hangs(dex)
		leave, answer := n.applies(t.Context(), "dex.yaml")
		require.Contains(t, n.record().Approved, "dex.yaml")
		leave()
		leave() // a second Ctrl-C changes nothing
		got := <-answer
		require.NoError(t, got.err)
		assert.Equal(t, map[string]status.Result{"dex.yaml": status.ResultCanceled}, got.results())
		assert.NotContains(t, n.record().Approved, "dex.yaml")
		n.source.hangs("")
		pass(time.Hour)
		c, _ := n.Node.Container("dex.yaml", "main")
		assert.NotEqual(t, newDex.Digest, c.Digests[0], "nobody has approved it")
		assert.Equal(t, status.StateStaged, n.Status().State, "it is still offered: "+n.Status().Reason)
		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	})
}

// The caller of two pods leaves while the first is proved: that goes on, and the second is not begun.
func TestWhatHasBegunGoesOnAndTheRestIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.settles(t)
		newDex, newDB := n.offer(t)
		leave, answer := n.applies(t.Context(), "dex.yaml", "db.yaml")
		n.awaitDB(func(d digest.Digest) bool { return d == newDB.Digest })
		leave()
		got := <-answer
		require.NoError(t, got.err)
		assert.Equal(t, map[string]status.Result{"db.yaml": status.ResultContinues, "dex.yaml": status.ResultCanceled}, got.results())
		pass(10 * time.Minute)
		n.runs("db.yaml", "main", newDB.Digest)
		c, _ := n.Node.Container("dex.yaml", "main")
		assert.NotEqual(t, newDex.Digest, c.Digests[0])
		assert.Empty(t, n.record().Approved)
		assert.Equal(t, newDB.Digest, n.record().Good["db.yaml/main"].Running, "it was proved without its caller")
	})
}

// Two persons approve one pod. Whoever leaves takes back only the own approval.
func TestWhoLeavesTakesBackOnlyTheOwnApproval(t *testing.T) {
	for name, aliceLeaves := range map[string]bool{"the first leaves": true, "the second leaves": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := neighbourhood(t)
				defer n.end()
				newDex, _ := n.offer(t)
				n.source.freed = make(chan struct{})
				n.source.hangs(dex)
				alice, hers := n.applies(status.WithActor(t.Context(), alice()), "dex.yaml")
				bob, his := n.applies(t.Context(), "dex.yaml")
				if aliceLeaves {
					alice()
					assert.Equal(t, map[string]status.Result{"dex.yaml": status.ResultCanceled}, (<-hers).results())
				} else {
					bob()
					require.ErrorIs(t, (<-his).err, agent.ErrCanceled)
				}
				synctest.Wait()
				assert.Contains(t, n.record().Approved, "dex.yaml")
				close(n.source.freed)
				pass(10 * time.Minute)
				n.runs("dex.yaml", "main", newDex.Digest)
				alice()
				bob()
			})
		})
	}
}

// A daemon that ends has no callers any more, and continues what was approved when it starts again.
func TestTheEndOfTheDaemonTakesNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.offer(t)
		n.source.hangs(dex)
		leave, answer := n.applies(t.Context(), "dex.yaml")
		n.stop()
		leave() // its connection ends with the daemon
		<-answer
		require.NoError(t, <-n.ended)
		assert.Contains(t, n.record().Approved, "dex.yaml")
	})
}

// A rollback of two pods whose caller leaves: what has not begun is as it was.
func TestARollbackThatHasNotBegunEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.settles(t)
		newDex, newDB := n.offer(t)
		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
		require.NoError(t, err)
		require.Len(t, out, 3)
		ctx, leave := context.WithCancel(t.Context())
		answer := make(chan left, 1)
		go func() {
			out, err := n.Rollback(ctx, plan.Named("db.yaml", "dex.yaml"), nil)
			answer <- left{out, err}
		}()
		n.awaitDB(func(d digest.Digest) bool { return d != newDB.Digest })
		leave()
		got := <-answer
		require.NoError(t, got.err)
		assert.Equal(t, map[string]status.Result{"db.yaml": status.ResultContinues, "dex.yaml": status.ResultCanceled}, got.results())
		pass(10 * time.Minute)
		n.runs("dex.yaml", "main", newDex.Digest)
		r := n.record()
		assert.NotContains(t, r.Overrides, "dex.yaml")
		assert.NotContains(t, r.Denied, denied(newDex), "it is not denied, and stays")
		assert.Contains(t, r.Denied, denied(newDB))
		assert.False(t, r.Overrides["db.yaml"].Pending, "it went on")
	})
}

// A retry that is taken back leaves denied what was denied.
func TestARetryThatHasNotBegunAllowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		newDex, _ := n.offer(t)
		n.Node.Crash(newDex.Digest, true)
		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultFailed, out[0].Result)
		require.Contains(t, n.record().Denied, denied(newDex))
		n.source.hangs(dex)
		ctx, leave := context.WithCancel(t.Context())
		answer := make(chan left, 1)
		go func() {
			out, err := n.Apply(ctx, agent.ApplyRequest{Which: plan.Named("dex.yaml"), Retry: true}, nil)
			answer <- left{out, err}
		}()
		synctest.Wait()
		require.NotContains(t, n.record().Denied, denied(newDex))
		leave()
		assert.Equal(t, map[string]status.Result{"dex.yaml": status.ResultCanceled}, (<-answer).results())
		synctest.Wait()
		assert.Contains(t, n.record().Denied, denied(newDex))
	})
}
