// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

var now = time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)

// TestImplausibleCreationTimes lists the creation times that tools for reproducible builds write.
func TestImplausibleCreationTimes(t *testing.T) {
	t.Parallel()
	times := map[string]struct {
		at   time.Time
		want bool
	}{
		"left out":                             {time.Time{}, false},
		"the year 1":                           {time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), false},
		"jib, bazel, SOURCE_DATE_EPOCH=0":      {time.Unix(0, 0), false},
		"jib: one second after 1970":           {time.Unix(1, 0), false},
		"buildpacks, nix: 1980":                {time.Date(1980, 1, 1, 0, 0, 1, 0, time.UTC), false},
		"SOURCE_DATE_EPOCH=315532800":          {time.Unix(315532800, 0), false},
		"zip: SOURCE_DATE_EPOCH=315619200":     {time.Unix(315619200, 0), false},
		"npm: 1985":                            {time.Date(1985, 10, 26, 8, 15, 0, 0, time.UTC), false},
		"a board without a clock: 2000":        {time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		"1970 in another zone":                 {time.Unix(0, 0).In(time.FixedZone("", 14*3600)), false},
		"before Docker":                        {time.Date(2013, 2, 28, 23, 59, 59, 0, time.UTC), false},
		"the first images":                     {time.Date(2013, 3, 1, 0, 0, 0, 0, time.UTC), true},
		"last year":                            {now.AddDate(-1, 0, 0), true},
		"now":                                  {now, true},
		"the future":                           {now.Add(time.Second), false},
		"the last year that the agent can say": {time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC), false},
	}
	for title, c := range times {
		assert.Equal(t, c.want, policy.IsPlausibleCreation(c.at, now), title)
		known := now.AddDate(-2, 0, 0)
		assert.Equal(t, c.want && c.at.After(known), policy.IsEarlier(
			release.Release{Build: release.Build{Created: known}}, release.Release{Build: release.Build{Created: c.at}}, now), title)
		assert.Equal(t, c.want && c.at.Before(known), policy.IsEarlier(
			release.Release{Build: release.Build{Created: c.at}}, release.Release{Build: release.Build{Created: known}}, now), title)
	}
}

func named(tag string, created time.Time) release.Release {
	return release.Release{Tag: tag, Digest: digest.FromString(tag), Build: release.Build{Created: created}}
}

// TestContradictionsOfNamesAndTimes uses tags of real repositories.
func TestContradictionsOfNamesAndTimes(t *testing.T) {
	t.Parallel()
	thisYear, lastYear := now.AddDate(0, -1, 0), now.AddDate(-1, 0, 0)
	cases := []struct {
		title    string
		was, rel release.Release
		want     string
	}{
		{"the scheme changed", named("1.2.2", thisYear), named("1.8.1259", lastYear), "newer by name"},
		{"a date as a version", named("2.1.0", thisYear), named("2021.12.10", lastYear), "newer by name"},
		{"a patch of an old minor", named("v1.33.9", thisYear), named("v1.34.2", lastYear), "newer by name"},
		{"a revision", named("4.0.0-rev1", thisYear), named("4.0.0-rev2", lastYear), "newer by name"},
		{"a build", named("4.0.0-rev1-build1.5", thisYear), named("4.0.0-rev1-build1.9", lastYear), "newer by name"},
		{"OBS began anew", named("4.0.0-rev1-build1.13", lastYear), named("4.0.0-rev1-build1.2", thisYear), "older by name"},
		{"a lower tag, created later", named("1.8.1259", lastYear), named("1.2.2", thisYear), "older by name"},
		{"as it should be", named("1.2.2", lastYear), named("1.8.1259", thisYear), ""},
		{"an older release", named("1.8.1259", thisYear), named("1.2.2", lastYear), ""},
		{"at the same time", named("1.2.2", thisYear), named("1.2.3", thisYear), ""},
		{"one is reproducible", named("1.2.2", thisYear), named("1.2.3", time.Unix(0, 0)), ""},
		{"the other is", named("1.2.2", time.Unix(315532800, 0)), named("1.2.3", lastYear), ""},
		{"both are", named("1.2.2", time.Unix(1, 0)), named("1.2.3", time.Unix(0, 0)), ""},
		{"one is of the future", named("1.2.2", now.AddDate(1, 0, 0)), named("1.2.3", thisYear), ""},
		{"no time", named("1.2.2", thisYear), named("1.2.3", time.Time{}), ""},
		{"the same tag", named("1.2.2", thisYear), named("1.2.2", lastYear), ""},
		{"no version", named("latest", thisYear), named("1.2.3", lastYear), ""},
		{"nothing is known", release.Release{}, named("1.2.3", lastYear), ""},
	}
	for _, c := range cases {
		got := policy.Contradiction(c.was, c.rel, tags.Scheme{}, now)
		if c.want == "" {
			assert.Empty(t, got, c.title)
			continue
		}
		assert.Contains(t, got, c.rel.Name()+" is "+c.want+" than "+c.was.Name(), c.title)
	}
	assert.Equal(t, "1.8.1259 is newer by name than 1.2.2, but was created earlier (2025-11-25T09:00:00Z, 2026-10-25T09:00:00Z)",
		policy.Contradiction(cases[0].was, cases[0].rel, tags.Scheme{}, now))
}
