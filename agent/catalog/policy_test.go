// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

var now = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

func TestCatalogRefuses(t *testing.T) {
	t.Parallel()
	d := digest.FromString("a release")
	rel := release.Release{Repository: "r.io/velum", Tag: "4.0.0-rev1", Long: "4.0.0-rev1-build1.1", Digest: d}
	lists := func(l format.Release) catalog.Listing {
		l.Digest = d
		return catalog.Listing{Catalog: "r.io/catalog:prod", Version: 7, Images: map[string][]format.Release{"r.io/velum": {l}}}
	}
	other := catalog.Listing{Catalog: "r.io/catalog:prod", Version: 7, Images: map[string][]format.Release{"r.io/velum": {{}}}}
	none := catalog.Listing{Catalog: "r.io/catalog:prod", Version: 7}
	gone := format.Withdrawal{Reason: "it loses data"}
	for name, c := range map[string]struct {
		policy catalog.Policy
		lists  catalog.Listing
		want   policy.Refusal // without its tag; zero: not refused
	}{
		"no catalog":       {catalog.Policy{OnlyListed: true}, catalog.Listing{}, policy.Refusal{}},
		"it was not read":  {catalog.Policy{}, catalog.Listing{Catalog: "r.io/catalog:prod"}, policy.Refusal{Rule: "unlisted", Reason: "r.io/catalog:prod was not read yet"}},
		"no page, allowed": {catalog.Policy{}, none, policy.Refusal{}},
		"no page": {catalog.Policy{OnlyListed: true}, none, policy.Refusal{
			Rule: "unlisted", Reason: "r.io/catalog:prod does not list r.io/velum", Key: "catalog.unlisted: ask",
		}},
		"listed":         {catalog.Policy{OnlyListed: true}, lists(format.Release{}), policy.Refusal{}},
		"another digest": {catalog.Policy{}, other, policy.Refusal{Rule: "unlisted", Reason: "r.io/catalog:prod does not list it"}},
		"withdrawn":      {catalog.Policy{}, lists(format.Release{Withdrawn: &gone}), policy.Refusal{Rule: "withdrawn", Reason: "withdrawn: it loses data"}},
		"withdrawn for another": {
			catalog.Policy{},
			lists(format.Release{Withdrawn: &format.Withdrawal{Reason: "it leaks", To: "4.0.0-rev2-build1.1"}}),
			policy.Refusal{Rule: "withdrawn", Reason: "withdrawn: it leaks (instead: 4.0.0-rev2-build1.1)"},
		},
		"critical": {catalog.Policy{}, lists(format.Release{Critical: []string{"needsKernel"}}), policy.Refusal{
			Rule: "critical", Reason: `r.io/catalog:prod needs a newer agent, which knows "needsKernel"`,
		}},
	} {
		got, refused := policy.Policy{Catalog: c.policy}.RefusesListed(c.lists, rel)
		assert.Equal(t, c.want.Rule != "", refused, name)
		if refused {
			c.want.Tag = rel.Long
			assert.Equal(t, c.want, got, name)
		}
	}
	withdrawn := lists(format.Release{Withdrawn: &gone})
	assert.True(t, catalog.Policy{AllowLower: true}.AllowsLower(withdrawn, rel))
	assert.False(t, catalog.Policy{}.AllowsLower(withdrawn, rel))
	assert.False(t, catalog.Policy{AllowLower: true}.AllowsLower(lists(format.Release{}), rel))
	assert.False(t, catalog.Policy{AllowLower: true}.AllowsLower(other, rel))
}

func TestCatalogExpiry(t *testing.T) {
	t.Parallel()
	assert.True(t, catalog.Listing{Version: 1, Expires: now}.IsExpired(now))
	assert.False(t, catalog.Listing{Version: 1, Expires: now.Add(1)}.IsExpired(now))
	assert.False(t, catalog.Listing{Version: 1}.IsExpired(now), "it never does")
	assert.False(t, catalog.Listing{Expires: now}.IsExpired(now), "none was read")
}

func TestSetHasOneRolloutTime(t *testing.T) {
	t.Parallel()
	c, from := catalog.Policy{MachineID: "a machine"}, time.Unix(1e9, 0)
	at := func(set, digestOf string) time.Time {
		return c.RolloutTime(format.Release{
			Set: set, Digest: digest.FromString(digestOf), Rollout: &format.Rollout{From: from, Hours: 48},
		})
	}
	assert.Equal(t, at("caasp-4.5.2", "velum"), at("caasp-4.5.2", "mariadb"))
	assert.NotEqual(t, at("caasp-4.5.2", "velum"), at("caasp-4.5.3", "velum"))
	assert.NotEqual(t, at("", "velum"), at("", "mariadb"))
}

func TestRolloutWithoutASpread(t *testing.T) {
	t.Parallel()
	assert.Equal(t, now, catalog.Policy{}.RolloutTime(format.Release{Rollout: &format.Rollout{From: now}}))
	for _, machine := range []string{"a", "b", "c"} {
		at := catalog.Policy{MachineID: machine}.RolloutTime(format.Release{Rollout: &format.Rollout{From: now, Hours: 1}})
		assert.WithinRange(t, at, now, now.Add(time.Hour))
	}
}

// A rollout that is made longer keeps the order of the nodes: who had its time keeps it.
func TestNodesKeepTheirPlaceInALongerRollout(t *testing.T) {
	t.Parallel()
	for n := range 50 {
		place := func(hours int) float64 {
			at := catalog.Policy{MachineID: fmt.Sprint(n)}.RolloutTime(format.Release{
				Digest: digest.FromString("velum"), Rollout: &format.Rollout{From: now, Hours: hours},
			})
			return at.Sub(now).Hours() / float64(hours)
		}
		assert.InDelta(t, place(24), place(60), 1e-9)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	assert.Nil(t, catalog.Listing{}.Status(now))
	l := catalog.Listing{Catalog: "c:prod", Version: 7, Expires: now, Images: map[string][]format.Release{"r.io/velum": nil}}
	assert.Equal(t, &catalog.Status{Catalog: "c:prod", Version: 7, Expires: &now, Images: 1}, l.Status(now.Add(-1)))
	assert.True(t, l.Status(now).Expired)
}
