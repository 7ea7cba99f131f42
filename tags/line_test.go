// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/tags"
)

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
