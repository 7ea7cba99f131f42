// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestWhatACatalogRefuses(t *testing.T) {
	t.Parallel()
	d := digest.FromString("a release")
	rel := release.Release{Repository: "r.io/velum", Tag: "4.0.0-rev1", Long: "4.0.0-rev1-build1.1", Digest: d}
	lists := func(l release.Listed) release.Listing {
		l.Digest = d
		return release.Listing{Catalog: "r.io/catalog:prod", Version: 7, Images: map[string][]release.Listed{"r.io/velum": {l}}}
	}
	other := release.Listing{Catalog: "r.io/catalog:prod", Version: 7, Images: map[string][]release.Listed{"r.io/velum": {{}}}}
	none := release.Listing{Catalog: "r.io/catalog:prod", Version: 7}
	gone := release.Withdrawal{Reason: "it loses data"}
	for name, c := range map[string]struct {
		policy policy.Catalog
		lists  release.Listing
		want   policy.Refusal // without its tag; zero: it is not refused
	}{
		"no catalog":       {policy.Catalog{OnlyListed: true}, release.Listing{}, policy.Refusal{}},
		"it was not read":  {policy.Catalog{}, release.Listing{Catalog: "r.io/catalog:prod"}, policy.Refusal{Rule: "unlisted", Reason: "r.io/catalog:prod was not read yet"}},
		"no page, allowed": {policy.Catalog{}, none, policy.Refusal{}},
		"no page": {policy.Catalog{OnlyListed: true}, none, policy.Refusal{
			Rule: "unlisted", Reason: "r.io/catalog:prod does not list r.io/velum", Key: "catalog.unlisted: ask",
		}},
		"listed":         {policy.Catalog{OnlyListed: true}, lists(release.Listed{}), policy.Refusal{}},
		"another digest": {policy.Catalog{}, other, policy.Refusal{Rule: "unlisted", Reason: "r.io/catalog:prod does not list it"}},
		"withdrawn":      {policy.Catalog{}, lists(release.Listed{Withdrawn: &gone}), policy.Refusal{Rule: "withdrawn", Reason: "withdrawn: it loses data"}},
		"withdrawn for another": {
			policy.Catalog{},
			lists(release.Listed{Withdrawn: &release.Withdrawal{Reason: "it leaks", To: "4.0.0-rev2-build1.1"}}),
			policy.Refusal{Rule: "withdrawn", Reason: "withdrawn: it leaks (instead: 4.0.0-rev2-build1.1)"},
		},
		"critical": {policy.Catalog{}, lists(release.Listed{UnknownCritical: "needsKernel"}), policy.Refusal{
			Rule: "critical", Reason: `r.io/catalog:prod needs an agent that knows "needsKernel"`,
		}},
	} {
		got, refused := c.policy.RefusesListed(c.lists, rel)
		assert.Equal(t, c.want.Rule != "", refused, name)
		if refused {
			c.want.Tag = rel.Long
			assert.Equal(t, c.want, got, name)
		}
	}
	withdrawn := lists(release.Listed{Withdrawn: &gone})
	assert.True(t, policy.Catalog{AllowLower: true}.AllowsLower(withdrawn, rel))
	assert.False(t, policy.Catalog{}.AllowsLower(withdrawn, rel))
	assert.False(t, policy.Catalog{AllowLower: true}.AllowsLower(lists(release.Listed{}), rel))
	assert.False(t, policy.Catalog{AllowLower: true}.AllowsLower(other, rel))
}

func TestWhenACatalogHasExpired(t *testing.T) {
	t.Parallel()
	assert.True(t, policy.IsExpired(release.Listing{Version: 1, Expires: now}, now))
	assert.False(t, policy.IsExpired(release.Listing{Version: 1, Expires: now.Add(1)}, now))
	assert.False(t, policy.IsExpired(release.Listing{Version: 1}, now), "it never does")
	assert.False(t, policy.IsExpired(release.Listing{Expires: now}, now), "none was read")
}

func TestSetHasOneTimeInARollout(t *testing.T) {
	t.Parallel()
	c, from := policy.Catalog{MachineID: "a machine"}, time.Unix(1e9, 0)
	at := func(set, digestOf string) time.Time {
		return c.RolloutTime(release.Listed{
			Set: set, Digest: digest.FromString(digestOf), Rollout: release.Rollout{From: from, Spread: 48 * time.Hour},
		})
	}
	assert.Equal(t, at("caasp-4.5.2", "velum"), at("caasp-4.5.2", "mariadb"))
	assert.NotEqual(t, at("caasp-4.5.2", "velum"), at("caasp-4.5.3", "velum"))
	assert.NotEqual(t, at("", "velum"), at("", "mariadb"))
}

func TestRolloutWithoutASpreadHasItsTime(t *testing.T) {
	t.Parallel()
	assert.Equal(t, now, policy.Catalog{}.RolloutTime(release.Listed{Rollout: release.Rollout{From: now}}))
	for _, machine := range []string{"a", "b", "c"} {
		at := policy.Catalog{MachineID: machine}.RolloutTime(release.Listed{Rollout: release.Rollout{From: now, Spread: time.Hour}})
		assert.WithinRange(t, at, now, now.Add(time.Hour))
	}
}
