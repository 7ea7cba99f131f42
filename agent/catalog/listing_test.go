// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

func listed(tag, set string) format.Release {
	return format.Release{Tag: tag, Set: set, Digest: digest.FromString(tag)}
}

func gone(r format.Release) format.Release {
	r.Withdrawn = &format.Withdrawal{Reason: "it loses data"}
	return r
}

func TestListing(t *testing.T) {
	t.Parallel()
	again := gone(listed("2", ""))
	again.Tag = "2-again"
	l := catalog.Listing{Images: map[string][]format.Release{"velum": {listed("2", ""), again, listed("1", "")}}}
	assert.True(t, l.IsListed("velum"))
	assert.False(t, l.IsListed("db"))
	r, is := l.Find("velum", digest.FromString("2"))
	assert.True(t, is)
	assert.Equal(t, "2-again", r.Tag, "a digest is withdrawn under all of its tags")
	assert.False(t, r.IsOffered())
	r, is = l.Find("velum", digest.FromString("1"))
	assert.True(t, is)
	assert.True(t, r.IsOffered())
	assert.False(t, format.Release{Critical: []string{"x"}}.IsOffered())
	for _, d := range []digest.Digest{"", digest.FromString("0")} {
		_, is = l.Find("velum", d)
		assert.False(t, is)
	}
	r, at := l.ByTag(release.Reference{Repository: "velum", Tag: "1"})
	assert.Equal(t, "1", r.Tag)
	assert.Equal(t, 2, at)
	_, at = l.ByTag(release.Reference{Repository: "velum", Tag: "0"})
	assert.Equal(t, -1, at)
}

func TestMembersOfASet(t *testing.T) {
	t.Parallel()
	said := listed("2", "s")
	said.Members = []string{"velum:2", "elsewhere:9"}
	l := catalog.Listing{Images: map[string][]format.Release{
		"velum": {listed("2", "s"), listed("1", "")}, "db": {listed("7", "s"), listed("6", "another")},
	}}
	assert.Nil(t, l.MembersOf("velum", listed("1", "")))
	assert.Equal(t, []release.Reference{{Repository: "velum", Tag: "2"}, {Repository: "elsewhere", Tag: "9"}}, l.MembersOf("velum", said))
	assert.Equal(t, []release.Reference{{Repository: "velum", Tag: "2"}, {Repository: "db", Tag: "7"}}, l.MembersOf("velum", listed("2", "s")))
}

// If one of its releases is withdrawn, the whole set is, unless a newer release replaces the withdrawn one.
func TestWithdrawnSets(t *testing.T) {
	t.Parallel()
	said := func(r format.Release, members ...string) format.Release {
		r.Members = members
		return r
	}
	for name, c := range map[string]struct {
		images map[string][]format.Release
		want   []string // additionally withdrawn releases
	}{
		"nothing is":          {map[string][]format.Release{"aa": {listed("1", "s")}, "bb": {listed("1", "s")}}, nil},
		"one of a set":        {map[string][]format.Release{"aa": {gone(listed("1", "s"))}, "bb": {listed("1", "s")}}, []string{"bb:1"}},
		"of no set":           {map[string][]format.Release{"aa": {gone(listed("1", ""))}, "bb": {listed("1", "s")}}, nil},
		"a newer is offered":  {map[string][]format.Release{"aa": {listed("2", ""), gone(listed("1", "s"))}, "bb": {listed("1", "s")}}, nil},
		"the newer is, too":   {map[string][]format.Release{"aa": {gone(listed("2", "")), gone(listed("1", "s"))}, "bb": {listed("1", "s")}}, []string{"bb:1"}},
		"by what was said":    {map[string][]format.Release{"aa": {gone(listed("1", ""))}, "bb": {said(listed("1", "s"), "aa:1", "bb:1")}}, []string{"bb:1"}},
		"it is no member":     {map[string][]format.Release{"aa": {gone(listed("1", "s"))}, "bb": {said(listed("1", "s"), "bb:1")}}, nil},
		"one leads to others": {map[string][]format.Release{"aa": {gone(listed("1", "s"))}, "bb": {listed("1", "s")}, "cc": {said(listed("1", "t"), "bb:1")}}, []string{"bb:1", "cc:1"}},
	} {
		l := catalog.Listing{Images: c.images}
		var got []string
		for repository, page := range l.WithWithdrawnSets().Images {
			for n, r := range page {
				if r.Withdrawn != nil && c.images[repository][n].Withdrawn == nil {
					got = append(got, repository+":"+r.Tag)
					assert.Contains(t, r.Withdrawn.Reason, "which was withdrawn: ", name)
				}
			}
		}
		assert.ElementsMatch(t, c.want, got, name)
	}
}

// What lies between two releases is that of the repository; of what is not listed, nothing is known.
func TestListingBrings(t *testing.T) {
	t.Parallel()
	build := func(tag string, severity format.Severity) format.Release {
		r := listed(tag, "")
		r.Advisory = &format.Advisory{Severity: severity, Fixes: []string{"bsc#" + tag[:1]}}
		return r
	}
	l := catalog.Listing{Images: map[string][]format.Release{velum: {build("3.0", "low"), build("2.0", "critical"), build("1.0", "critical")}}}
	assert.Equal(t, format.Brought{Severity: "critical", Fixes: []string{"bsc#3", "bsc#2"}},
		l.Brings(velum, digest.FromString("1.0"), digest.FromString("3.0"), tags.Scheme{}))
	assert.Equal(t, format.Brought{Partial: true}, l.Brings("r.io/db", digest.FromString("1.0"), digest.FromString("3.0"), tags.Scheme{}))
	assert.Equal(t, format.Brought{Partial: true}, catalog.Listing{}.Brings(velum, "", digest.FromString("3.0"), tags.Scheme{}))
}

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
		var page []format.Release
		for _, tag := range c.listed {
			page = append(page, format.Release{Tag: tag})
		}
		l := catalog.Listing{Images: map[string][]format.Release{velum: page}}
		got, ok := l.Newest(release.Reference{Repository: velum, Tag: c.followed}, tags.Scheme{}, format.Release.IsOffered)
		assert.Equal(t, c.want, got.Tag, "%s of %v", c.followed, c.listed)
		assert.Equal(t, c.want != "", ok, "%s of %v", c.followed, c.listed)
	}
}

func TestNewestFits(t *testing.T) {
	t.Parallel()
	l := catalog.Listing{Images: map[string][]format.Release{velum: {
		{Tag: "1.34.3", Withdrawn: &format.Withdrawal{}}, {Tag: "1.34.2", Critical: []string{"cpu"}}, {Tag: "1.34.1"},
	}}}
	ref := release.Reference{Repository: velum, Tag: "1.34"}
	got, _ := l.Newest(ref, tags.Scheme{}, format.Release.IsOffered)
	assert.Equal(t, "1.34.1", got.Tag)
	got, _ = l.Newest(ref, tags.Scheme{}, func(format.Release) bool { return true })
	assert.Equal(t, "1.34.3", got.Tag)
}

func TestTags(t *testing.T) {
	t.Parallel()
	l := catalog.Listing{Images: map[string][]format.Release{velum: {
		{Tag: "4.0.0-rev2-build1.1"}, {Tag: "4.0.0-rev1-build1.1"}, {Tag: "v1.34"}, {Tag: "nightly"},
	}}}
	assert.Equal(t, []string{
		"4.0.0-rev2-build1.1", "4.0.0-rev2", "4.0.0", "4.0.0-rev1-build1.1", "4.0.0-rev1", "v1.34", "v1", "nightly",
	}, l.Tags(velum, tags.Scheme{}))
}
