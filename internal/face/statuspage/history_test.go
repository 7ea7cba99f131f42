// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// A hold is shown once: with the offer that it holds, or else by itself.
func TestStatusShowsHoldsOfWhatComes(t *testing.T) {
	t.Parallel()
	since, until := time.Unix(0, 0).UTC(), time.Unix(7200, 0).UTC()
	s := status.Status{StandingHolds: []status.StandingHold{
		{Repository: "*", Name: "freeze", Reason: "no updates before spring", By: status.Actor{Kind: status.ByConfiguration}},
		{
			Repository: "a/velum", Name: "hold", Reason: "demo", Since: &since, Until: &until,
			By: status.Actor{Kind: status.ByPerson, Via: "bus", UID: new(uint32(1000)), User: "alice"},
		},
	}}
	page := pageOf(t, s, 0, time.Unix(3600, 0), false)
	assert.Contains(t, page, `
Standing holds:
  freeze: no updates before spring
    for      every image
    by       configuration
    remedy   wait for the date; or change apply.freeze and reload
  hold: demo
    for      a/velum
    by       alice (uid 1000, bus) at 1970-01-01 00:00:00 UTC (1h ago)
    until    1970-01-01 02:00:00 UTC (in 1h)
    remedy   image-update-agent resume velum; or wait until it ends
`)
	s.PodManifests = []status.PodStatus{{PodManifest: "velum.yaml", Holds: []status.Hold{
		{Name: "hold", Reason: "demo", Image: "a/velum", By: status.ByPerson, Until: until}, {Name: "freeze", Reason: "spring"},
	}}}
	assert.NotContains(t, pageOf(t, s, 0, time.Unix(3600, 0), false), "Standing holds:")
}
