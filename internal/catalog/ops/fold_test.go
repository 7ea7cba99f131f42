// SPDX-License-Identifier: Apache-2.0

package ops_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

func TestFoldNeverReplacesADigest(t *testing.T) {
	t.Parallel()
	other := build(1)
	other.Digest = build(2).Digest
	s, _ := ops.Fold(ops.State{}, catalog.Op{Tag: opTag(1), Channel: "prod", Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: build(1)}}})
	for _, do := range []catalog.Action{catalog.ActionAdd, catalog.ActionPromote, catalog.ActionWithdraw} {
		after, results := ops.Fold(s, catalog.Op{Tag: opTag(2), Channel: "prod", Do: do, Changes: []catalog.Change{{Image: velum, Release: other}}})
		require.Len(t, results, 1)
		require.NotNil(t, results[0].Err)
		assert.Equal(t, catalog.KindConflict, results[0].Err.Kind)
		assert.Equal(t, s.Pages, after.Pages)
	}
}

// A release that was listed without a set gets the one that a later add has, and its members.
func TestAddRecordsTheSetOfWhatIsListed(t *testing.T) {
	t.Parallel()
	add := func(n int, set string, members ...string) catalog.Op {
		r := build(1)
		r.Set = set
		return catalog.Op{
			Tag: opTag(n), Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: r}},
			Sets: map[string][]string{set: members},
		}
	}
	for title, c := range map[string]struct {
		all     []catalog.Op
		set     string
		members []string
	}{
		"no set, then one":     {[]catalog.Op{add(1, ""), add(2, "b", "x:1")}, "b", []string{"x:1"}},
		"one, then no set":     {[]catalog.Op{add(1, "b", "x:1"), add(2, "")}, "b", []string{"x:1"}},
		"two sets":             {[]catalog.Op{add(1, "b", "x:1"), add(2, "a", "y:1")}, "a", []string{"y:1"}},
		"more of one set":      {[]catalog.Op{add(1, "a", "y:1"), add(2, "a", "x:1")}, "a", []string{"x:1", "y:1"}},
		"the same of one set":  {[]catalog.Op{add(1, "a", "y:1"), add(2, "a", "y:1")}, "a", []string{"y:1"}},
		"a set that is larger": {[]catalog.Op{add(1, "c", "y:1"), add(2, "d", "x:1")}, "c", []string{"y:1"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s, _ := ops.Fold(ops.State{}, c.all...)
			assert.Equal(t, c.set, s.Pages[velum].Releases[0].Set)
			assert.Equal(t, c.members, s.Pages[velum].Releases[0].Members)
		})
	}
}

func TestPageKeepsTheNewestAndAllWithdrawnReleases(t *testing.T) {
	t.Parallel()
	op := catalog.Op{Tag: opTag(1), Do: catalog.ActionPromote}
	for n := range 100 {
		op.Changes = append(op.Changes, catalog.Change{Image: velum, Release: build(n)})
	}
	gone := build(3)
	gone.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
	s, _ := ops.Fold(ops.State{}, op, catalog.Op{Tag: opTag(2), Do: catalog.ActionWithdraw, Changes: []catalog.Change{{Image: velum, Release: gone}}})
	releases := s.Pages[velum].Releases
	require.Len(t, releases, catalog.Kept+1)
	assert.Equal(t, build(99).Tag, releases[0].Tag)
	assert.Equal(t, build(3).Tag, releases[catalog.Kept].Tag)
}

// Nodes that follow 2.6.2 find its newest build, however many of 4.0.0 there are.
func TestPageKeepsTheNewestOfEachShortTag(t *testing.T) {
	t.Parallel()
	op := catalog.Op{Tag: opTag(1), Do: catalog.ActionAdd}
	for n := range 100 {
		old := build(n)
		old.Tag = fmt.Sprintf("2.6.2-rev1-build1.%d", n)
		op.Changes = append(op.Changes, catalog.Change{Image: velum, Release: build(n)}, catalog.Change{Image: velum, Release: old})
	}
	s, _ := ops.Fold(ops.State{}, op)
	releases := s.Pages[velum].Releases
	require.Len(t, releases, catalog.Kept+1)
	assert.Equal(t, "2.6.2-rev1-build1.99", releases[catalog.Kept].Tag)
}

// What a page keeps does not depend on the order of adds, nor on how many come at once.
func TestPagesAreTrimmedInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []catalog.Op
		for n := range rapid.IntRange(1, 80).Draw(t, "adds") {
			r := build(n)
			r.Tag = fmt.Sprintf("%d.0-rev1-build1.%d", rapid.IntRange(1, 4).Draw(t, "version"), n)
			all = append(all, catalog.Op{Tag: opTag(n), Do: catalog.ActionAdd, Changes: []catalog.Change{{Image: velum, Release: r}}})
		}
		want, _ := ops.Fold(ops.State{}, all...)
		got := ops.State{}
		for rest := rapid.Permutation(all).Draw(t, "order"); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "at once")
			got, _ = ops.Fold(got, rest[:n]...)
			rest = rest[n:]
		}
		require.Equal(t, want, got)
	})
}
