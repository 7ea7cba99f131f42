// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

const velum = "registry.suse.com/caasp/v4/velum"

// Other publishers than SUSE have v1.34.2 under v1.34 and v1, and a catalog lists v1.34.2.
func TestNewest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		followed string
		listed   []string // the newest first
		want     string   // empty: no listed tag is under the followed tag
	}{
		{"v1.34", []string{"v1.34.2", "v1.34.1"}, "v1.34.2"},
		{"v1.34", []string{"v1.34.9", "v1.34.10"}, "v1.34.10"},
		{"v1", []string{"v1.34.2"}, "v1.34.2"},
		{"1", []string{"1.34.2", "2.0.0"}, "1.34.2"},
		{"1.34.2", []string{"1.34.2"}, "1.34.2"},
		{"2024.11", []string{"2024.11.1"}, "2024.11.1"},
		{"v1.34", []string{"v1.35.1"}, ""},
		{"v1", []string{"v2.0.1"}, ""},
		{"v1.3", []string{"v1.34.2"}, ""},
		{"v1.34.2", []string{"v1.34"}, ""},
		{"1.34", []string{"v1.34.2"}, ""},
		{"v1", []string{"1.34.2"}, ""},
		// A pod never leaves its variant.
		{"1.34-alpine", []string{"1.34.2", "1.34.2-alpine", "1.34.3"}, "1.34.2-alpine"},
		{"1.34-alpine", []string{"1.34.9-alpine", "1.34.10-alpine"}, "1.34.10-alpine"},
		{"1.34-alpine", []string{"1.34.2"}, ""},
		{"1.34-alpine", []string{"1.34.2-alpine3.22"}, ""},
		{"1.34", []string{"1.34.2-alpine"}, ""},
		{"1", []string{"1.34.0-rc.1"}, ""},
		{"latest", []string{"1.34.2"}, ""},
		// SUSE's scheme: a tag names a whole application version.
		{"1.34-rev1", []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
		{"1.34-rev1", []string{"1.34.2"}, ""},
		{"1.34", []string{"1.34.2-rev1-build2.1"}, ""},
		{"1.34", []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
	} {
		var page []catalog.Listed
		for _, tag := range c.listed {
			page = append(page, catalog.Listed{Tag: tag})
		}
		l := catalog.Listing{Images: map[string][]catalog.Listed{velum: page}}
		got, ok := l.Newest(release.Reference{Repository: velum, Tag: c.followed}, tags.Scheme{}, catalog.Listed.IsOffered)
		assert.Equal(t, c.want, got.Tag, "%s of %v", c.followed, c.listed)
		assert.Equal(t, c.want != "", ok, "%s of %v", c.followed, c.listed)
	}
}

func TestNewestFits(t *testing.T) {
	t.Parallel()
	l := catalog.Listing{Images: map[string][]catalog.Listed{velum: {
		{Tag: "1.34.3", Withdrawn: &catalog.Withdrawal{}}, {Tag: "1.34.2", UnknownCritical: "cpu"}, {Tag: "1.34.1"},
	}}}
	ref := release.Reference{Repository: velum, Tag: "1.34"}
	got, _ := l.Newest(ref, tags.Scheme{}, catalog.Listed.IsOffered)
	assert.Equal(t, "1.34.1", got.Tag)
	got, _ = l.Newest(ref, tags.Scheme{}, func(catalog.Listed) bool { return true })
	assert.Equal(t, "1.34.3", got.Tag)
}

func TestTags(t *testing.T) {
	t.Parallel()
	l := catalog.Listing{Images: map[string][]catalog.Listed{velum: {
		{Tag: "4.0.0-rev2-build1.1"}, {Tag: "4.0.0-rev1-build1.1"}, {Tag: "v1.34"}, {Tag: "nightly"},
	}}}
	assert.Equal(t, []string{
		"4.0.0-rev2-build1.1", "4.0.0-rev2", "4.0.0", "4.0.0-rev1-build1.1", "4.0.0-rev1", "v1.34", "v1", "nightly",
	}, l.Tags(velum, tags.Scheme{}))
}
