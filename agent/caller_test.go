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
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// left is the answer of an apply or a rollback to a caller that has left.
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

// begins starts a request whose caller may leave.
func begins(
	ctx context.Context, do func(context.Context) ([]status.Outcome, error),
) (leave func(), answer chan left) {
	ctx, leave = context.WithCancel(ctx)
	answer = make(chan left, 1)
	go func() {
		out, err := do(ctx)
		answer <- left{out, err}
	}()
	synctest.Wait()
	return leave, answer
}

// applies starts an apply whose caller may leave.
func (n *neighbours) applies(ctx context.Context, files ...string) (leave func(), answer chan left) {
	return begins(ctx, func(ctx context.Context) ([]status.Outcome, error) {
		return n.Apply(ctx, agent.ApplyRequest{Which: plan.Named(files...)}, nil)
	})
}

// returns starts a rollback whose caller may leave.
func (n *neighbours) returns(ctx context.Context, files ...string) (leave func(), answer chan left) {
	return begins(ctx, func(ctx context.Context) ([]status.Outcome, error) {
		return n.Rollback(ctx, plan.Named(files...), nil)
	})
}

// retries starts an apply with retry whose caller may leave.
func (n *neighbours) retries(ctx context.Context, files ...string) (leave func(), answer chan left) {
	return begins(ctx, func(ctx context.Context) ([]status.Outcome, error) {
		return n.Apply(ctx, agent.ApplyRequest{Which: plan.Named(files...), Retry: true}, nil)
	})
}

// settles makes each health check take half a minute.
func (n *neighbours) settles(t *testing.T) {
	t.Helper()
	n.Policy.Settle = 30 * time.Second
	require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 0))
}

// offer stages a release of dex and one of mariadb.
func (n *neighbours) offer(t *testing.T) (newDex, newDB release.Release) {
	t.Helper()
	newDex, newDB = n.Registry.Release(dex, "4.0.0", 1, "1.2"), n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
	s := n.checks()
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	return newDex, newDB
}

// awaitDB waits until the digest that db.yaml runs satisfies is.
func (n *neighbours) awaitDB(is func(digest.Digest) bool) {
	for c, _ := n.Node.Container("db.yaml", "main"); !is(c.Digests[0]); c, _ = n.Node.Container("db.yaml", "main") {
		pass(100 * time.Millisecond)
	}
}

// Ctrl-C while the apply still asks the registry prevents a later restart of the pod.
func TestApplyThatHasNotBegunEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
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
		assert.NotEqual(t, newDex.Digest, c.Digests[0], "it is not approved")
		assert.Equal(t, status.StateStaged, n.Status().State, "it is still offered: "+n.Status().Reason)
		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	})
}

// The caller of two pods leaves during the health check of the first: it continues, and the second pod is not
// restarted.
func TestCallerLeavesDuringTheFirstOfTwoPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
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
		assert.Equal(t, newDB.Digest, n.record().Good["db.yaml/main"].Running, "it was verified healthy without its caller")
	})
}

// Two people approve one pod. A caller that leaves takes back only its own approval.
func TestLeavingCallerTakesBackOnlyItsApproval(t *testing.T) {
	for name, aliceLeaves := range map[string]bool{"the first leaves": true, "the second leaves": false} {
		run(t, name, func(t *testing.T) {
			n := neighbourhood(t)
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
	}
}

// The end of the daemon takes no approval back: after its start it continues what was approved.
func TestEndOfTheDaemonKeepsApprovals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.offer(t)
		n.source.hangs(dex)
		leave, answer := n.applies(t.Context(), "dex.yaml")
		n.stop()
		leave() // its connection ends with the daemon
		<-answer
		n.end()
		assert.Contains(t, n.record().Approved, "dex.yaml")
	})
}

// The caller of a rollback of two pods leaves: the pod whose rollback has not begun is unchanged, also if the node cannot
// be observed at the end of the cycle.
func TestRollbackThatHasNotBegunEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for name, blind := range map[string]error{"": nil, "the node cannot be observed": assert.AnError} {
		run(t, name, func(t *testing.T) {
			n := neighbourhood(t)
			n.settles(t)
			newDex, newDB := n.offer(t)
			out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
			require.NoError(t, err)
			require.Len(t, out, 3)
			leave, answer := n.returns(t.Context(), "db.yaml", "dex.yaml")
			n.awaitDB(func(d digest.Digest) bool { return d != newDB.Digest })
			defer n.Listen(func(p status.Progress) {
				if p.Ended != "" && p.PodManifest == "db.yaml" {
					n.Node.Blind(blind)
				}
			})()
			leave()
			got := <-answer
			require.NoError(t, got.err)
			assert.Equal(t, map[string]status.Result{"db.yaml": status.ResultContinues, "dex.yaml": status.ResultCanceled}, got.results())
			pass(time.Minute)
			n.Node.Blind(nil)
			pass(10 * time.Minute)
			n.runs("dex.yaml", "main", newDex.Digest)
			r := n.record()
			assert.NotContains(t, r.Overrides, "dex.yaml")
			assert.NotContains(t, r.Denied, denied(newDex), "it is not denied, and stays")
			assert.Contains(t, r.Denied, denied(newDB))
			assert.False(t, r.Overrides["db.yaml"].Pending, "it went on")
		})
	}
}

// A retry that is taken back keeps the denials.
func TestRetryThatHasNotBegunKeepsDenials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		newDex, _ := n.offer(t)
		n.Node.Crash(newDex.Digest, true)
		out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultFailed, out[0].Result)
		require.Contains(t, n.record().Denied, denied(newDex))
		n.source.hangs(dex)
		leave, answer := n.retries(t.Context(), "dex.yaml")
		require.NotContains(t, n.record().Denied, denied(newDex))
		leave()
		assert.Equal(t, map[string]status.Result{"dex.yaml": status.ResultCanceled}, (<-answer).results())
		synctest.Wait()
		assert.Contains(t, n.record().Denied, denied(newDex))
	})
}

// offers returns a node with two pods of velum, one of them with mariadb as well, and an update of each image.
func offers(t *testing.T) (w *world, newVelum, newDB release.Release) {
	t.Helper()
	w = newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1", "web="+velum+":4.0.0-rev1"))
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	w.check()
	newVelum = w.Registry.Release(velum, "4.0.0", 2, "2.1")
	newDB = w.Registry.Release(mariadb, "10.0", 2, "2.1")
	s := w.check()
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	return w, newVelum, newDB
}

// An approval is for digests: an apply that names digests approves no others.
func TestApplyIsForTheExpectedDigests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, web, db := offers(t)
		other := digest.FromString("other")
		fails := func(which plan.Which, shown ...plan.Shown) error {
			t.Helper()
			before := w.record()
			out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: which, Expect: shown})
			require.Error(t, err)
			assert.Empty(t, out)
			assert.Equal(t, before.Approved, w.record().Approved, "nothing is approved")
			return err
		}
		moved := func(err error) []plan.Moved {
			t.Helper()
			var is *plan.MovedError
			require.ErrorAs(t, err, &is)
			return is.Moved
		}
		for name, shown := range map[string]struct {
			which plan.Which
			shown []plan.Shown
			want  []plan.Moved
		}{
			"another digest is offered": {plan.Named("velum.yaml"), []plan.Shown{{Image: "velum", Digest: other}}, []plan.Moved{{
				PodManifest: "velum.yaml", Container: "velum", Image: velum, Expected: other, Offered: web.Digest, Tag: web.Name(),
			}}},
			"an image beside it was not shown": {plan.Named("db.yaml"), []plan.Shown{{Image: "velum", Digest: web.Digest}}, []plan.Moved{{
				PodManifest: "db.yaml", Container: "db", Image: mariadb, Offered: db.Digest, Tag: db.Name(),
			}}},
			"all, and one was not shown": {plan.All(), []plan.Shown{{Image: mariadb, Digest: db.Digest}}, []plan.Moved{
				{PodManifest: "db.yaml", Container: "web", Image: velum, Offered: web.Digest, Tag: web.Name()},
				{PodManifest: "velum.yaml", Container: "velum", Image: velum, Offered: web.Digest, Tag: web.Name()},
			}},
			"two digests of one image, and only one is offered": {
				plan.Named("velum.yaml"),
				[]plan.Shown{{Image: "velum", Digest: web.Digest}, {Image: velum, Digest: other}},
				[]plan.Moved{{PodManifest: "velum.yaml", Container: "velum", Image: velum, Expected: other}},
			},
		} {
			assert.Equal(t, shown.want, moved(fails(shown.which, shown.shown...)), name)
		}
		require.ErrorIs(t, fails(plan.Named("velum.yaml"), plan.Shown{Image: "mariadb", Digest: db.Digest}), plan.ErrNotSelected)
		require.ErrorIs(t, fails(plan.Named("velum.yaml"), plan.Shown{Image: "velu", Digest: web.Digest}), plan.ErrUnknownImage)
		require.ErrorIs(t, fails(plan.Named("velu"), plan.Shown{Image: "velum", Digest: web.Digest}), plan.ErrUnknownImage)
		require.ErrorIs(t, fails(plan.Which{}), plan.ErrWhich)
		require.ErrorIs(t, fails(plan.Which{All: true, Images: []string{"velum"}}), plan.ErrWhich)

		exact := agent.ApplyRequest{
			Which:  plan.Named("velum.yaml", "velum.yaml"),
			Expect: []plan.Shown{{Image: "velum", Digest: web.Digest}, {Image: velum, Digest: web.Digest}},
		}
		out, _, err := w.agent.Apply(t.Context(), exact)
		require.NoError(t, err)
		require.Len(t, out, 1)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", web.Digest)

		out, _, err = w.agent.Apply(t.Context(), exact)
		require.NoError(t, err, "what was expected runs already")
		assert.Equal(t, status.ResultNothing, out[0].Result)
		out, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All(), Expect: []plan.Shown{
			{Image: "velum", Digest: web.Digest}, {Image: "mariadb", Digest: db.Digest},
		}})
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result)
		err = fails(plan.Named("velum.yaml"), plan.Shown{Image: "velum", Digest: other})
		assert.Equal(t, "the offer has changed: velum.yaml: "+velum+": "+other.String()+
			" was expected, nothing is offered now", err.Error())
	})
}

// A held pod is not compared with the expected digests: the outcome names the hold.
func TestHeldPodIsNotComparedWithExpectedDigests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := offers(t)
		_, _, err := w.agent.Hold(t.Context(), nil, true, record.PersonHold{})
		require.NoError(t, err)
		out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{
			Which: plan.Named("velum.yaml"), Expect: []plan.Shown{{Image: "velum", Digest: digest.FromString("other")}},
		})
		require.NoError(t, err)
		assert.Equal(t, status.ResultHeld, out[0].Result)
	})
}

// A rejected retry keeps the denials.
func TestRetryOfOtherDigestsChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, web, _ := offers(t)
		w.Node.Crash(web.Digest, true)
		out, _ := w.apply("velum.yaml")
		require.Equal(t, status.ResultFailed, out[0].Result)
		before := w.record()
		require.NotEmpty(t, before.Denied)
		_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{
			Which: plan.Named("velum.yaml"), Retry: true, Expect: []plan.Shown{{Image: "velum", Digest: digest.FromString("other")}},
		})
		var moved *plan.MovedError
		require.ErrorAs(t, err, &moved)
		after := w.record()
		assert.Equal(t, before.Denied, after.Denied)
		assert.Equal(t, before.Failed, after.Failed)
	})
}
