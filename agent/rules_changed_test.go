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

// obey restarts the agent with another rule for all repositories.
func (w *world) obey(rule policy.Rule) {
	w.Policy.Rule = func(string) policy.Rule { return rule }
	w.restart()
}

func limit(t *testing.T, text string) tags.Tag {
	t.Helper()
	limit, err := tags.Parse(text)
	require.NoError(t, err)
	return limit
}

// What was read once and passed over is not offered when the rules change.
func TestDigestReadOnceIsConfirmedBeforeItIsOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := follows(t, policy.Rule{Updates: tags.Revision})
		w.Policy.ConfirmAfter = time.Second
		w.obey(policy.Rule{Updates: tags.Revision, Allow: []string{"4.0.0-rev1-*", "4.0.0-rev2-*"}})
		second := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
		third := w.Registry.PublishBuild(velum, built("y", april.Add(2*time.Hour), ""), "4.0.0-rev3", "4.0.0-rev3-build1.1")
		i := image(w.check(), "velum.yaml", "velum")
		require.Equal(t, second.Digest, i.Offered.Digest)
		require.Equal(t, policy.RuleAllow, i.Refused[0].Rule)
		w.obey(policy.Rule{Updates: tags.Revision})
		assert.Equal(t, second.Digest, image(w.observe(), "velum.yaml", "velum").Offered.Digest)
		assert.Equal(t, third.Digest, image(w.check(), "velum.yaml", "velum").Offered.Digest)
		w.obey(policy.Rule{Updates: tags.Revision, Max: limit(t, "4.0.0-rev2")})
		i = image(w.observe(), "velum.yaml", "velum")
		assert.Nil(t, i.Offered, "nobody has asked for it this time")
		assert.Contains(t, i.Notes, "4.0.0-rev2 may be newer, and is asked for at the next check")
		assert.Equal(t, second.Digest, image(w.poll(), "velum.yaml", "velum").Offered.Digest)
	})
}

// The tag named another build for one poll, and names the denied one again.
func TestFailedReleaseStaysDeniedWhileAnotherIsPinned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Registry.Release(velum, "4.0.0", 1, "9.10")
		require.Equal(t, status.StateStaged, w.check().State)
		w.Registry.Tag(velum, "4.0.0-rev1", bad.Digest)
		w.Registry.Tag(velum, "4.0.0", bad.Digest)
		s := w.check()
		i := image(s, "velum.yaml", "velum")
		assert.Nil(t, i.Offered)
		require.NotEmpty(t, i.Refused)
		assert.Equal(t, policy.RuleFailed, i.Refused[0].Rule)
		assert.Equal(t, status.StateFailed, s.State, "it is there again")
		w.idle()
	})
}

// The next best is found where the best did not come up.
func TestDeniedReleaseDoesNotHideLowerOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		second := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.bad(3, "3.1")
		w.apply()
		s := w.check()
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
		assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	})
}
