// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// What was above the tag that was followed may be below the one that is followed now.
func TestReplacedReleaseIsNotNewer(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	for _, rev := range []string{"2", "3"} {
		w.Registry.PublishBuild(velum, built(rev, april.Add(time.Hour), ""), "4.0.0-rev"+rev, "4.0.0-rev"+rev+"-build1.1")
	}
	w.check()
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.obey(policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev3*"}})
	i := image(w.observe(), "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	assert.Empty(t, i.Notes)
}

// A tag that the configuration follows may be below what runs: it was written there.
func TestFollowedTagMayBeLower(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	w.check()
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.obey(policy.Rule{Updates: tags.Same, Follow: "4.0.0-rev1"})
	i := image(w.check(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	assert.Equal(t, "4.0.0-rev1-build1.5", i.Offered.Tag)
}
