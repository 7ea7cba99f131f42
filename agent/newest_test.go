// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
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

// A newer release is offered without waiting for a build of the followed one.
func TestPublishingHoldsNothingBesideANewerRelease(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1-build9.9")
	i := image(w.check(), "velum.yaml", "velum")
	require.NotEmpty(t, i.Refused)
	require.Equal(t, policy.RulePublishing, i.Refused[0].Rule)
	w.Registry.PublishBuild(velum, built("y", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	s := w.check()
	assert.NotNil(t, image(s, "velum.yaml", "velum").Offered)
	assert.Empty(t, image(s, "velum.yaml", "velum").Refused)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// With rebuilds only, a missing list of newer tags is not noted.
func TestMissingTagListIsNotedWhereNeeded(t *testing.T) {
	t.Parallel()
	for updates, noted := range map[tags.Change]bool{tags.Rebuild: false, tags.Revision: true} {
		w := follows(t, policy.Rule{Updates: updates})
		w.Disk.Lose()
		w.restart()
		w.Registry.DownLists(errors.New("away"))
		assert.Equal(t, noted, len(image(w.check(), "velum.yaml", "velum").Notes) > 0, updates)
	}
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
