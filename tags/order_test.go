// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/tags"
)

func TestCompareAscends(t *testing.T) {
	t.Parallel()
	all := append([]tags.Tag{{}}, mustAll(t, ascendingTags...)...)
	for i, a := range all {
		for j, b := range all {
			assert.Equal(t, cmp.Compare(i, j), tags.Compare(a, b), "%s %s", a, b)
		}
	}
}

func TestSortIsIndependentOfTheInput(t *testing.T) {
	t.Parallel()
	all := mustAll(t, ascendingTags...)
	slices.Reverse(all)
	slices.SortFunc(all, tags.Compare)
	assert.Equal(t, mustAll(t, ascendingTags...), all)
}

// AllocsPerRun measures the whole process, so this test does not run in parallel.
func TestCompareAllocatesNothing(t *testing.T) {
	all := mustAll(t, ascendingTags...)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		for _, a := range all {
			for _, b := range all {
				tags.Compare(a, b)
				tags.ChangeBetween(a, b)
			}
		}
	}))
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		tags.Newest(all, all[0], tags.Major)
	}))
}

func TestParseAllocatesNothingForAGoodTag(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		_, _ = tags.Parse("v1.18.6-rev2-build3.8")
	}))
}
