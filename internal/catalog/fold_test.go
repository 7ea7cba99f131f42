// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

func TestFoldIsIdempotentAndIndependentOfOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ops := drawOps(t)
		want, _ := catalog.Fold(catalog.State{}, ops...)
		again, results := catalog.Fold(want, ops...)
		require.Equal(t, want, again)
		for _, r := range results {
			require.False(t, r.Changed)
		}
		got := catalog.State{}
		for _, op := range rapid.Permutation(ops).Draw(t, "order") {
			got, _ = catalog.Fold(got, op)
		}
		require.Equal(t, want, got)
		for _, op := range ops {
			require.True(t, got.IsMerged(op.Tag))
		}
	})
}

func TestFoldNeverReplacesADigest(t *testing.T) {
	t.Parallel()
	other := build(1)
	other.Digest = build(2).Digest
	s, _ := catalog.Fold(catalog.State{}, catalog.Op{Tag: opTag(1), Channel: "prod", Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: build(1)}}})
	for _, do := range []catalog.Action{catalog.ActionAdd, catalog.ActionPromote, catalog.ActionWithdraw} {
		after, results := catalog.Fold(s, catalog.Op{Tag: opTag(2), Channel: "prod", Do: do, Changes: []catalog.Change{{Image: velum, Release: other}}})
		require.Len(t, results, 1)
		require.NotNil(t, results[0].Err)
		assert.Equal(t, catalog.KindConflict, results[0].Err.Kind)
		assert.Equal(t, s.Pages, after.Pages)
	}
}

func TestPromoteAfterWithdrawOffersTheReleaseAgain(t *testing.T) {
	t.Parallel()
	gone := build(1)
	gone.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
	withdraw := catalog.Op{Tag: opTag(2), Do: catalog.ActionWithdraw, Changes: []catalog.Change{{Image: velum, Release: gone}}}
	add := catalog.Op{Tag: opTag(3), Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: build(1)}}}
	promote := catalog.Op{Tag: opTag(4), Do: catalog.ActionPromote, Changes: []catalog.Change{{Image: velum, Release: build(1)}}}
	s, _ := catalog.Fold(catalog.State{}, withdraw, add)
	assert.NotNil(t, s.Pages[velum].Releases[0].Withdrawn, "an add does not take a withdrawal back")
	s, _ = catalog.Fold(s, promote)
	assert.Nil(t, s.Pages[velum].Releases[0].Withdrawn)
}

func TestPageKeepsTheNewestAndAllWithdrawnReleases(t *testing.T) {
	t.Parallel()
	op := catalog.Op{Tag: opTag(1), Do: catalog.ActionPromote}
	for n := range 100 {
		op.Changes = append(op.Changes, catalog.Change{Image: velum, Release: build(n)})
	}
	gone := build(3)
	gone.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
	s, _ := catalog.Fold(catalog.State{}, op, catalog.Op{Tag: opTag(2), Do: catalog.ActionWithdraw, Changes: []catalog.Change{{Image: velum, Release: gone}}})
	releases := s.Pages[velum].Releases
	require.Len(t, releases, catalog.Kept+1)
	assert.Equal(t, build(99).Tag, releases[0].Tag)
	assert.Equal(t, build(3).Tag, releases[catalog.Kept].Tag)
}

func TestOpsBelowAFullListCountAsMerged(t *testing.T) {
	t.Parallel()
	var s catalog.State
	for n := range 200 {
		s, _ = catalog.Fold(s, catalog.Op{Tag: "op-20261122T120000Z-" + hex8(n), Do: catalog.ActionRefresh})
	}
	assert.Len(t, s.Merged, 128)
	assert.True(t, s.IsMerged("op-20261121T120000Z-00000000"))
	assert.False(t, s.IsMerged("op-20261122T120001Z-00000000"))
}
