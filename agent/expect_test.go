// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// offers is a node with two pods of velum, one of them with mariadb beside it, and an update of each image.
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

// An approval is for digests: an apply that carries them approves nothing else.
func TestAnApplyIsForTheDigestsThatWereShown(t *testing.T) {
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

// What a hold keeps is not compared: the outcome names the hold.
func TestAHeldPodIsHeldWhateverIsExpected(t *testing.T) {
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

// A refused retry leaves what was denied as it was.
func TestARetryOfOtherDigestsChangesNothing(t *testing.T) {
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
