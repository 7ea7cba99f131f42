// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
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

// The current rules decide at once, in mode auto too.
func TestNewRuleAppliesAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule policy.Rule
		by   string
	}{
		"updates: none":    {policy.Rule{Updates: tags.Same}, policy.RuleUpdates},
		"updates: rebuild": {policy.Rule{Updates: tags.Rebuild}, policy.RuleUpdates},
		"max":              {policy.Rule{Updates: tags.Revision, Max: limit(t, "4.0.0-rev1")}, policy.RuleMax},
		"deny":             {policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev2*"}}, policy.RuleDeny},
		"deny a long tag":  {policy.Rule{Updates: tags.Revision, Deny: []string{"*-build7.1"}}, policy.RuleDeny},
		"allow":            {policy.Rule{Updates: tags.Revision, Allow: []string{"4.0.0-rev1"}}, policy.RuleAllow},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := follows(t, policy.Rule{Updates: tags.Revision})
				w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build7.1")
				require.Equal(t, status.StateStaged, w.check().State)
				w.Registry.Counts()
				w.Policy.Auto = true
				w.obey(c.rule)
				s := w.observe()
				i := image(s, "velum.yaml", "velum")
				assert.Nil(t, i.Offered, s.Reason)
				assert.Equal(t, "4.0.0-rev1-build1.5", i.Running.Tag)
				require.NotEmpty(t, i.Refused)
				assert.Equal(t, c.by, i.Refused[0].Rule)
				assert.Empty(t, w.Grain.Last().Updates)
				assert.Zero(t, w.Registry.Counts())
				out, _ := w.apply()
				assert.Equal(t, status.ResultNothing, out[0].Result)
				w.idle()
			})
		})
	}
}

// A rebuild behind the followed tag is an update like any other.
func TestRebuildIsRefusedWhereUpdatesAreNone(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	require.Equal(t, status.StateStaged, w.check().State)
	w.obey(policy.Rule{Updates: tags.Same})
	i := image(w.observe(), "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.Refusal{Tag: "4.0.0-rev1-build1.6", Rule: policy.RuleUpdates, Reason: "rebuild is more than none", Key: "updates: rebuild"}, i.Refused[0])
	w.obey(policy.Rule{Updates: tags.Rebuild})
	assert.NotNil(t, image(w.observe(), "velum.yaml", "velum").Offered, "it is known, and read twice")
	w.idle()
}

// The pod manifest still has the short tag: what its twin has risen by is asked of
// the rules, too.
func TestMovedShortTagIsComparedByItsRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.5")
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	require.Equal(t, policy.ChangeConvert, image(w.check(), "velum.yaml", "velum").Change)
	w.Registry.PublishBuild(velum, built("two", april.Add(time.Hour), ""), "4.0.0", "4.0.0-rev2", "4.0.0-rev2-build1.1")
	require.Equal(t, "revision", image(w.check(), "velum.yaml", "velum").Change)
	w.obey(policy.Rule{Updates: tags.Rebuild})
	i := image(w.observe(), "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleUpdates, i.Refused[0].Rule)
	w.idle()
}

// A loosened rule may allow a release that was never asked for: the source is asked soon, by each
// node at its own time.
func TestNewlyAllowedReleaseIsAskedForSoon(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	rev := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	patch := w.Registry.PublishBuild(velum, built("y", april.Add(2*time.Hour), ""), "4.0.1-rev1", "4.0.1-rev1-build1.1")
	i := image(w.check(), "velum.yaml", "velum")
	require.Equal(t, rev.Digest, i.Offered.Digest)
	w.Registry.Counts()

	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.restart()
	w.agent.Jitter = func() float64 { return 0.5 }
	i = image(w.observe(), "velum.yaml", "velum")
	assert.Equal(t, rev.Digest, i.Offered.Digest, "until more is known")
	assert.Contains(t, i.Notes, "4.0.1-rev1 may be newer, and is asked for at the next check")
	w.Clock.Add(5*time.Minute - time.Second)
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Registry.Counts())
	w.Clock.Add(time.Second)
	i = image(w.cycle(source.PollFailed), "velum.yaml", "velum")
	assert.Equal(t, patch.Digest, i.Offered.Digest)
	assert.Empty(t, i.Notes)
	assert.Equal(t, agenttest.Counts{Heads: 3, Lists: 1, Describes: 1}, w.Registry.Counts())
	w.Clock.Add(time.Hour)
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Registry.Counts(), "once")

	// Where it comes back, nothing is to be asked for.
	w.obey(policy.Rule{Updates: tags.Revision})
	w.observe()
	w.obey(policy.Rule{Updates: tags.Patch})
	w.observe()
	w.Clock.Add(time.Hour)
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Registry.Counts())
}

// The loop itself asks, after a reload.
func TestTheNextCheckIsSoonAfterARuleHasChanged(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.restart()
	w.agent.Jitter = func() float64 { return 0.5 }
	w.observe()
	retries := w.agent.Retries()
	require.Len(t, retries, 1)
	assert.Equal(t, w.Clock.Now().Add(5*time.Minute), retries[0])
	w.Registry.Down(refuses(503, time.Time{}))
	w.Clock.Add(5 * time.Minute)
	w.cycle(source.PollFailed)
	retries = w.agent.Retries()
	require.Len(t, retries, 1, "the back-off of its source is enough")
	assert.True(t, retries[0].After(w.Clock.Now()))
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

// A conversion restarts the pod like any other change.
func TestConversionIsRefusedLikeAnyOtherChange(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]policy.Rule{
		"deny": {Updates: tags.Revision, Deny: []string{"4.0.0-rev1*"}},
		"max":  {Updates: tags.Revision, Max: limit(t, "3.9")},
	} {
		for kind, disk := range map[string]string{"of the tag": "4.0.0", "of the pull policy": "4.0.0-rev1"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":"+disk))
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
				s := w.check()
				require.Equal(t, policy.ChangeConvert, podOf(s, "velum.yaml").Change)
				w.obey(rule)
				for _, s := range []status.Status{w.observe(), w.check(), w.poll()} {
					assert.Empty(t, podOf(s, "velum.yaml").Change)
					assert.Empty(t, w.Grain.Last().Updates)
					assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
					require.NotEmpty(t, image(s, "velum.yaml", "velum").Refused)
					assert.Equal(t, name, image(s, "velum.yaml", "velum").Refused[0].Rule)
				}
				out, _ := w.apply()
				assert.Equal(t, status.ResultNothing, out[0].Result)
				w.idle()
				w.obey(policy.Rule{Updates: tags.Revision})
				assert.Equal(t, policy.ChangeConvert, podOf(w.observe(), "velum.yaml").Change)
			})
		}
	}
}

// What its neighbour is refused is not offered of the other images either.
func TestRefusedConversionWithholdsItsPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutPodManifest("two.yaml", podYAML("two", "velum="+velum+":4.0.0", "db="+mariadb+":10.0-rev1"))
	w.Node.PutTemplate("two.yaml", podYAML("two", "velum="+velum+":4.0.0", "db="+mariadb+":10.0-rev1"))
	require.Equal(t, policy.ChangeConvert, image(w.check(), "two.yaml", "velum").Change)
	w.obey(policy.Rule{Updates: tags.Revision, Deny: []string{"10.0-rev1"}})
	s := w.observe()
	assert.Empty(t, podOf(s, "two.yaml").Change)
	assert.Nil(t, image(s, "two.yaml", "velum").Offered)
}

// Rules do not apply to a container that follows nothing.
func TestPinnedImageDoesNotRefuseAConversion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule {
		return policy.Rule{Updates: tags.Revision, Allow: []string{"4.0.0*"}}
	}
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	pinned := "beside=" + mariadb + "@" + digest.FromString("pinned").String()
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", pinned))
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", pinned))
	assert.Equal(t, policy.ChangeConvert, podOf(w.check(), "velum.yaml").Change)
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

// A trimmed tag list is asked for again when the rules allow lower tags.
func TestNewlyAllowedReleaseIsListedAgain(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Rebuild})
	for n := range 20 {
		w.Registry.Publish(velum, "5.0."+strconv.Itoa(n)+"-rev1")
	}
	want := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	require.Nil(t, image(w.check(), "velum.yaml", "velum").Offered)
	w.obey(policy.Rule{Updates: tags.Revision})
	w.observe()
	w.Clock.Add(10 * time.Minute)
	i := image(w.cycle(source.PollFailed), "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	assert.Equal(t, want.Digest, i.Offered.Digest)
}

// Rules that have changed under a wrong clock are asked for soon.
func TestNewlyAllowedReleaseIsAskedForSoonWithAWrongClock(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Rebuild})
	w.Clock.Add(1000 * time.Hour)
	w.obey(policy.Rule{Updates: tags.Revision})
	w.observe()
	w.Clock.Add(-1000 * time.Hour)
	require.Len(t, w.agent.Retries(), 1)
	assert.Equal(t, w.Clock.Now(), w.agent.Retries()[0])
}
