// SPDX-License-Identifier: Apache-2.0

package ops_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

const velum = "registry.suse.com/caasp/v4/velum"

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// build is the n-th build of velum.
func build(n int) catalog.Release {
	return catalog.Release{
		Tag: fmt.Sprintf("4.0.0-rev1-build1.%d", n), Digest: digest.FromString(fmt.Sprint(n)), Created: noon.Add(time.Duration(n) * time.Hour),
	}
}

func opTag(n int) string { return fmt.Sprintf("op-prod-20261122T%02d0000Z-%012x", n%24, n) }

// drawOps draws ops of all verbs for a few releases: of publishers who know of each other, and who do not. The clocks of
// some are years off.
func drawOps(t *rapid.T) []catalog.Op {
	var all []catalog.Op
	for n := range rapid.IntRange(1, 9).Draw(t, "ops") {
		op := catalog.Op{
			Tag:  fmt.Sprintf("op-prod-%d1122T120000Z-%012x", rapid.IntRange(2020, 2030).Draw(t, "year"), n),
			Turn: uint64(rapid.IntRange(0, 4).Draw(t, "turn")), Name: "registry.example.com/catalog", Channel: "prod",
			Do: rapid.SampledFrom([]catalog.Action{
				catalog.ActionAdd, catalog.ActionAdd, catalog.ActionPromote, catalog.ActionPromote, catalog.ActionWithdraw,
				catalog.ActionRefresh, catalog.ActionFreeze, catalog.ActionNote,
			}).Draw(t, "do"),
		}
		at := noon.Add(time.Duration(n) * time.Hour)
		switch op.Do {
		case catalog.ActionRefresh:
			op.Expires = at
		case catalog.ActionFreeze:
			op.Until = at
		default:
			drawChanges(t, &op, at)
		}
		all = append(all, op)
	}
	return all
}

func drawChanges(t *rapid.T, op *catalog.Op, at time.Time) {
	op.Again = op.Do == catalog.ActionPromote && rapid.Bool().Draw(t, "again")
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		r := build(rapid.IntRange(1, 3).Draw(t, "build"))
		r.Set = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "set")
		r.Advisory = rapid.SampledFrom([]*catalog.Advisory{
			nil, {Severity: "low"}, {Severity: "low", Fixes: []string{"bsc#1"}}, {Severity: "critical"},
		}).Draw(t, "advisory")
		switch op.Do {
		case catalog.ActionNote:
			if r.Advisory == nil {
				r.Advisory = &catalog.Advisory{}
			}
		case catalog.ActionWithdraw:
			r.Withdrawn = &catalog.Withdrawal{At: at, Reason: "bsc#1"}
		case catalog.ActionPromote:
			r.Rollout = rapid.SampledFrom([]*catalog.Rollout{nil, {From: at, Hours: 48}}).Draw(t, "rollout")
		}
		if r.Set != "" && rapid.Bool().Draw(t, "has members") {
			op.Sets = map[string][]string{r.Set: {catalog.Member(velum, r.Tag)}}
		}
		if slices.ContainsFunc(op.Changes, func(c catalog.Change) bool { return c.Release.Tag == r.Tag }) {
			continue // an op asks for each release once
		}
		op.Changes = append(op.Changes, catalog.Change{Image: velum, Release: r})
	}
}

// The order of ops does not matter, nor how many are folded at once, and folding twice is folding once.
func TestOrderOfOpsDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawOps(t)
		is := listing(t, all)
		want, _ := ops.Fold(is, all...)
		again, results := ops.Fold(want, all...)
		require.Equal(t, want, again)
		for _, r := range results {
			require.False(t, r.Changed, "%+v", r)
		}
		got := is
		for rest := rapid.Permutation(all).Draw(t, "order"); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "at once")
			got, _ = ops.Fold(got, rest[:n]...)
			rest = rest[n:]
		}
		require.Equal(t, want, got)
		for _, op := range all {
			require.True(t, got.IsMerged(op.Tag))
			require.LessOrEqual(t, op.Turn, got.Turn)
		}
	})
}

// listing returns a channel that lists the releases of ops, where one of them is a note: nobody notes what is not listed.
func listing(t *rapid.T, all []catalog.Op) ops.State {
	if !slices.ContainsFunc(all, func(op catalog.Op) bool { return op.Do == catalog.ActionNote }) {
		return ops.State{}
	}
	add := catalog.Op{Tag: "op-prod-20191122T120000Z-000000000000", Do: catalog.ActionAdd}
	for n := range 3 {
		add.Changes = append(add.Changes, catalog.Change{Image: velum, Release: build(n + 1)})
	}
	s, _ := ops.Fold(ops.State{}, add)
	return s
}

// Of the advisories of a release, the last note counts, whatever else was asked for; without one, that which matters most.
func TestTheLaterNoteCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawOps(t)
		s, _ := ops.Fold(listing(t, all), all...)
		slices.SortFunc(all, func(a, b catalog.Op) int { return a.Mark().Compare(b.Mark()) })
		noted, other := map[string]*catalog.Advisory{}, map[string]*catalog.Advisory{}
		for _, op := range all {
			for _, c := range op.Changes {
				is, tag := c.Release.Advisory, c.Release.Tag
				switch {
				case op.Do == catalog.ActionNote:
					noted[tag] = is
				case is != nil && (other[tag] == nil || is.Severity.Compare(other[tag].Severity) > 0 || len(is.Fixes) > len(other[tag].Fixes) && is.Severity == other[tag].Severity):
					other[tag] = is
				}
			}
		}
		for _, is := range s.Pages[velum].Releases {
			want := noted[is.Tag]
			if want == nil {
				want = other[is.Tag]
			}
			require.True(t, is.Advisory.IsSame(want), "%s: %v, want %v", is.Tag, is.Advisory, want)
		}
	})
}

// A note lists nothing: a channel that is frozen takes notes.
func TestANoteListsNothing(t *testing.T) {
	t.Parallel()
	r := build(1)
	r.Advisory = &catalog.Advisory{Severity: "low"}
	op := catalog.Op{Tag: opTag(1), Do: catalog.ActionNote, Changes: []catalog.Change{{Image: velum, Release: r}}}
	s, results := ops.Fold(ops.State{}, op)
	assert.Empty(t, s.Pages)
	assert.False(t, results[0].Changed)
	assert.False(t, ops.Brings(op))
}

// A withdrawal absorbs: a release is offered only if nobody has withdrawn it, or an op that says so came later.
func TestAWithdrawalAbsorbs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawOps(t)
		s := ops.State{}
		for _, op := range rapid.Permutation(all).Draw(t, "order") {
			s, _ = ops.Fold(s, op)
		}
		for _, is := range s.Pages[velum].Releases {
			var gone, again catalog.Mark
			for _, op := range all {
				has := slices.ContainsFunc(op.Changes, func(c catalog.Change) bool { return c.Release.Tag == is.Tag })
				switch {
				case has && op.Do == catalog.ActionWithdraw && op.Mark().Compare(gone) > 0:
					gone = op.Mark()
				case has && op.Again && op.Mark().Compare(again) > 0:
					again = op.Mark()
				}
			}
			require.Equal(t, gone.Compare(again) > 0, is.Withdrawn != nil, is.Tag)
		}
	})
}

// What is promoted, frozen and refreshed goes by the later op, whatever became of the release.
func TestTheLaterOpCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawOps(t)
		s, _ := ops.Fold(ops.State{}, all...)
		slices.SortFunc(all, func(a, b catalog.Op) int { return a.Mark().Compare(b.Mark()) })
		want := map[string]catalog.Op{}
		for _, op := range all {
			switch op.Do {
			case catalog.ActionRefresh:
				require.True(t, s.Expires.Equal(op.Expires) || s.Refreshed != op.Mark())
			case catalog.ActionFreeze:
				require.True(t, s.Frozen.Equal(op.Until) || s.Freeze != op.Mark())
			case catalog.ActionPromote:
				for _, c := range op.Changes {
					want[c.Release.Tag] = op
				}
			}
		}
		for tag, op := range want {
			is := ops.Find(s.Pages[velum], tag)
			require.Equal(t, op.Mark(), is.Offered(), "turns order ops, and no clock does")
		}
	})
}

// A pause or a promotion that was asked for beside a withdrawal does not offer the release again, whoever was later; nor
// does one of an older publisher, whose ops have no turn.
func TestAPauseBesideAWithdrawal(t *testing.T) {
	t.Parallel()
	gone, paused := build(1), build(1)
	gone.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
	paused.Rollout = &catalog.Rollout{From: noon, Hours: 48}
	for _, turns := range [][2]uint64{{1, 1}, {1, 2}, {2, 1}, {0, 1}, {0, 0}} {
		s, _ := ops.Fold(ops.State{}, catalog.Op{Tag: opTag(1), Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: build(1)}}})
		s, _ = ops.Fold(s,
			catalog.Op{Tag: opTag(2), Turn: turns[0], Do: catalog.ActionWithdraw, Changes: []catalog.Change{{Image: velum, Release: gone}}},
			catalog.Op{Tag: opTag(3), Turn: turns[1], Do: catalog.ActionPromote, Changes: []catalog.Change{{Image: velum, Release: paused}}})
		assert.NotNil(t, s.Pages[velum].Releases[0].Withdrawn, turns)
	}
	// The withdrawal of an older publisher has no mark of its own.
	old := gone
	old.Op = opTag(2)
	s := ops.State{Pages: map[string]catalog.Page{velum: {Image: velum, Releases: []catalog.Release{old}}}}
	s, _ = ops.Fold(s, catalog.Op{Tag: opTag(1), Turn: 1, Do: catalog.ActionPromote, Changes: []catalog.Change{{Image: velum, Release: paused}}})
	assert.Equal(t, opTag(2), s.Pages[velum].Releases[0].Withdrawn.Op)
	s, _ = ops.Fold(s, catalog.Op{Tag: opTag(1), Turn: 1, Again: true, Do: catalog.ActionPromote, Changes: []catalog.Change{{Image: velum, Release: paused}}})
	assert.Nil(t, s.Pages[velum].Releases[0].Withdrawn)
}

// A freeze refuses what brings releases, and nothing else; a clock that is ahead, and a turn that would use up all others,
// count for nothing.
func TestOpsThatDoNotCount(t *testing.T) {
	t.Parallel()
	frozen := catalog.Times{Frozen: noon.Add(time.Hour), Turn: 7, Freeze: catalog.Mark{Op: opTag(9), Turn: 6}}
	for _, do := range []catalog.Action{
		catalog.ActionAdd, catalog.ActionPromote, catalog.ActionWithdraw, catalog.ActionRefresh, catalog.ActionFreeze,
	} {
		op := catalog.Op{Tag: opTag(1), Do: do, Turn: 6}
		assert.Empty(t, ops.Refusal(frozen, op, noon), "asked for at the same time: %s", do)
		op.Turn = 7
		brings := do == catalog.ActionAdd || do == catalog.ActionPromote
		assert.Equal(t, brings, ops.Refusal(frozen, op, noon) != "", do)
		assert.Empty(t, ops.Refusal(frozen, op, noon.Add(2*time.Hour)), do)
		op.Calm = true
		assert.Empty(t, ops.Refusal(frozen, op, noon), do)
		op.Tag = "op-prod-99991231T235959Z-ffff00000000"
		assert.Contains(t, ops.Refusal(frozen, op, noon), "more than a day ahead")
		op.Tag, op.Turn = opTag(1), 1<<40
		assert.Contains(t, ops.Refusal(frozen, op, noon), "its turn is")
	}
}

// Ops, and the pages that come of them, are read as they were written.
func TestOpsAndPagesAreDecodedAsEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawOps(t)
		for _, op := range all {
			data, err := op.Encode()
			require.NoError(t, err)
			got, err := catalog.DecodeOp(op.Tag, data)
			require.NoError(t, err)
			require.Equal(t, op, got)
		}
		s, _ := ops.Fold(listing(t, all), all...)
		for image, page := range s.Pages {
			data, err := page.Encode()
			require.NoError(t, err)
			again, err := page.Encode()
			require.NoError(t, err)
			require.Equal(t, data, again)
			ref := catalog.PageRef{Image: image, Digest: digest.FromBytes(data), Size: int64(len(data))}
			got, err := catalog.DecodePage(data, ref)
			require.NoError(t, err)
			require.Equal(t, page, got)
		}
	})
}
