// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// repository is a tag list with every kind of change from 1.7.5-rev2.
var repository = []string{
	"v1.7.6-rev9-build9.9", "v1.7.6", "2.0.0-rev1-build1.1", "2.0.0-rev1", "2.0.0",
	"1.8.0", "1.8.0-rev1", "1.8.0-rev1-build1.1", "1.7.6", "1.7.6-rev9", "1.7.6-rev9-build9.9", "1.7.6-rev10", "1.7.6-rev10-build2.3",
	"1.7.5", "1.7.5-rev3", "1.7.5-rev3-build1.1", "1.7.5-rev2", "1.7.5-rev2-build3.5", "1.7.5-rev2-build3.9", "1.7.5-rev2-build3.12",
	"1.7.4", "1.7.4-rev9", "1.7.4-rev9-build9.9",
}

// newest are the expected results for that repository.
var newest = []struct {
	follow  string
	largest tags.Change
	want    string
}{
	{"1.7.5-rev2-build3.9", tags.Same, "1.7.5-rev2-build3.9"},
	{"1.7.5-rev2-build3.9", tags.Rebuild, "1.7.5-rev2-build3.12"},
	{"1.7.5-rev2-build3.9", tags.Revision, "1.7.5-rev3-build1.1"},
	{"1.7.5-rev2-build3.9", tags.Patch, "1.7.6-rev10-build2.3"},
	{"1.7.5-rev2-build3.9", tags.Minor, "1.8.0-rev1-build1.1"},
	{"1.7.5-rev2-build3.9", tags.Major, "2.0.0-rev1-build1.1"},
	{"1.7.5-rev2", tags.Rebuild, "1.7.5-rev2"},
	{"1.7.5-rev2", tags.Revision, "1.7.5-rev3"},
	{"1.7.5-rev2", tags.Patch, "1.7.6-rev10"},
	{"1.7.5", tags.Revision, "1.7.5"},
	{"1.7.5", tags.Patch, "1.7.6"},
	{"1.7.5", tags.Major, "2.0.0"},
	{"v1.7.5", tags.Major, "v1.7.6"},

	{"1.7.5-rev2-build3.8", tags.Same, ""},
	{"1.7.5-rev2-build4.1", tags.Rebuild, ""},
	{"1.7.5-rev4", tags.Revision, ""},
	{"2.0.0-rev2", tags.Major, ""},
	{"v1.7.5-rev1", tags.Major, ""},
	{"1.7.5", tags.Lower, ""},
	{"1.7.5", tags.Unrelated, ""},
}

func TestNewest(t *testing.T) {
	t.Parallel()
	all := append(mustAll(t, repository...), tags.Tag{})
	for _, c := range newest {
		got, ok := tags.Newest(all, must(t, c.follow), c.largest)
		assert.Equal(t, c.want, got.String(), "%s %v", c.follow, c.largest)
		assert.Equal(t, c.want != "", ok)
	}
}

func TestNewestStaysAsFloatingAsTheFollowedTag(t *testing.T) {
	t.Parallel()
	floating := mustAll(t, "1", "1.28", "1.28.0", "1.28.1", "1.29", "1.29.0", "1.29.1", "2", "2.0", "2.0.0",
		"v1.28", "v1.29", "v1.29.7", "3.2-rev1", "3.2.1-rev1")
	for _, c := range []struct {
		follow  string
		largest tags.Change
		want    string
	}{
		{"1.28", tags.Revision, "1.28"},
		{"1.28", tags.Patch, "1.28"},
		{"1.28", tags.Minor, "1.29"},
		{"1.28", tags.Major, "2.0"},
		{"1", tags.Minor, "1"},
		{"1", tags.Major, "2"},
		{"1.28.0", tags.Patch, "1.28.1"},
		{"1.28.0", tags.Minor, "1.29.1"},
		{"1.28.0", tags.Major, "2.0.0"},
		{"v1.28", tags.Minor, "v1.29"},
		{"3.2-rev1", tags.Patch, "3.2.1-rev1"}, // two versions of one application are in line
	} {
		got, ok := tags.Newest(floating, must(t, c.follow), c.largest)
		assert.True(t, ok)
		assert.Equal(t, c.want, got.String(), "%s %v", c.follow, c.largest)
	}
}

func TestNewestOfNothing(t *testing.T) {
	t.Parallel()
	_, ok := tags.Newest(nil, must(t, "1.7.5"), tags.Major)
	assert.False(t, ok)
	_, ok = tags.Newest(append(mustAll(t, repository...), tags.Tag{}), tags.Tag{}, tags.Major)
	assert.False(t, ok)
}

func TestExceeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tag, limit string
		want       bool
	}{
		{"4.1.9-rev3", "4.1", false},
		{"4.1", "4.1", false},
		{"4.2", "4.1", true},
		{"4.0.9", "4.1", false},
		{"5", "4.1", true},
		{"4", "4.1", false}, // has fewer numbers, and is lower by name
		{"4.10", "4.9", true},
		{"4.1.2-rev1-build9.9", "4.1.2-rev1", false},
		{"4.1.2-rev2", "4.1.2-rev1", true},
		{"4.1.2-rev10", "4.1.2-rev9", true},
		{"4.1.2", "4.1.2-rev1", false},
		{"4.1.3", "4.1.2-rev1", true},
		{"4.1.2-rev1-build5.1", "4.1.2-rev1-build5", false},
		{"4.1.2-rev1-build5.2", "4.1.2-rev1-build5.1", true},
		{"4.1.2-rev1-build5.1", "4.1.2-rev1-build5.1", false},
		{"4.1.2-rev1", "4.1.2-rev1-build5.1", false},
		{"v4.2", "4.1", true},
		{"v4.1", "4.1", false},
	} {
		assert.Equal(t, c.want, must(t, c.tag).Exceeds(must(t, c.limit)), "%s over %s", c.tag, c.limit)
	}
	assert.False(t, must(t, "4").Exceeds(tags.Tag{}), "no limit")
	assert.False(t, tags.Tag{}.Exceeds(must(t, "4")))
}

// No tag exceeds itself or a shorter form of itself, and a tag that exceeds another is higher in the order.
func TestPropertyExceedsAgreesWithTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := goodTag().Draw(t, "a"), goodTag().Draw(t, "b")
		require.False(t, a.Exceeds(a))
		require.False(t, a.Exceeds(a.Short()))
		if i, ok := a.Intermediate(); ok {
			require.False(t, a.Exceeds(i))
		}
		if a.Exceeds(b) { // the text, the last key of Compare, decides only between equal tags
			require.Positive(t, tags.Compare(a, b), "%s exceeds %s", a, b)
		}
	})
}

// A tag floats for a pre-release where a tag of the list is under it.
func TestFloatsForAPreRelease(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			return rapid.StringMatching(`v?[12](\.[012]){0,2}(-rc1)?(-alpine)?(-rev[12](-build[12])?)?`).Draw(t, "tag")
		})
		var list []tags.Tag
		for _, text := range rapid.SliceOfN(text, 1, 12).Draw(t, "list") {
			if tag, err := tags.Parse(text); err == nil {
				list = append(list, tag)
			}
		}
		from, err := tags.Parse("1.2-rc1" + rapid.SampledFrom([]string{"", "-alpine"}).Draw(t, "from"))
		require.NoError(t, err)
		isFloating := tags.FloatsFor(from, list)
		for _, to := range list {
			isUnder := func(t tags.Tag) bool { return t.IsUnder(to) }
			require.Equal(t, !strings.Contains(to.String(), "-rc1") && slices.ContainsFunc(list, isUnder), isFloating(to), "%s in %v", to, list)
		}
	})
}

// A registry that lists as many tags as are read does not keep a node that follows a pre-release busy for an hour.
func TestLongListsForAPreRelease(t *testing.T) {
	t.Parallel()
	for from, form := range map[string]string{
		"7.2-rc3": "7.%d", "7.2-rc3-alpine": "7.2-alpine%d", "3.26.1-rc1-ls7": "3.26.1-ls%d",
	} {
		var list []tags.Tag
		var texts []string
		for n := range 100_000 {
			texts = append(texts, fmt.Sprintf(form, n+3))
			list = append(list, must(t, texts[n]))
		}
		follow := must(t, from)
		tags.Newest(list, follow, tags.Minor)
		tags.FindNotUnderstood(texts, follow, tags.Scheme{}, 5)
	}
}
