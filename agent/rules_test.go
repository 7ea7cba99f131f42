// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// Releases are compared with the running one: the agent keeps its description as long as it runs, even if it crashes
// repeatedly, which may be why it was withdrawn.
func TestCrashingWithdrawnBuildIsReportedInEveryCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := follows(t, policy.Rule{Updates: tags.Revision})
		bad := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
		w.Node.Crash(bad.Digest, true)
		w.Node.Restart("velum.yaml", "velum") // kubelet pulls it without the agent
		w.poll()
		w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
		for _, s := range []status.Status{w.poll(), w.observe(), w.observe()} {
			i := image(s, "velum.yaml", "velum")
			assert.Nil(t, i.Offered)
			require.NotEmpty(t, i.Refused)
			assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
		}
		w.idle()
		w.Registry.Counts()
		w.poll()
		assert.Zero(t, w.Registry.Counts().Describes, "what runs was learnt once")
	})
}

// Without long tags, a build dated 2999 would be newer than all later ones.
func TestFutureTimeIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.PublishBuild(velum, built("first", april.AddDate(973, 0, 0), ""), "4.0.0-rev1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.runs("velum.yaml", "velum", first.Digest)
	next := w.Registry.PublishBuild(velum, built("next", april, ""), "4.0.0-rev1")
	i := image(w.check(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered, i.Refused)
	assert.Equal(t, next.Digest, i.Offered.Digest)
	w.Clock.Add(time.Hour)
	i = image(w.observe(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered, i.Refused)
	w.applies()

	w.Registry.PublishBuild(velum, built("old", april.Add(-time.Hour), ""), "4.0.0-rev1")
	i = image(w.check(), "velum.yaml", "velum")
	require.NotEmpty(t, i.Refused, "a time in the past is evidence")
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
}

// The pod manifest still has the short tag, because its conversion is not approved: a move to an older build is still
// reported.
func TestShortTagMovedToAnOlderBuildIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.5")
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	require.Equal(t, "convert", image(w.check(), "velum.yaml", "velum").Change)
	lower := w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.3")
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Empty(t, i.Change)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
	assert.Empty(t, w.Node.Names(lower.Digest))
	assert.True(t, held(s, "velum.yaml", status.HoldRefused), "its pull policy alone would restart it, and start the older one")
	w.idle()

	w.obey(policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev1"})
	s = w.check()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "what the configuration names is meant")
	assert.Equal(t, lower.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
}

// A running release that the source did not have is described once the source has it.
func TestDigestIsDescribedWhenTheRegistryIsBack(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	five, _ := w.Node.Container("velum.yaml", "velum")
	w.Registry.Vanish(velum, five.Digests[0])
	w.Disk.Lose()
	w.restart()
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.poll()
	again := w.Registry.Restore(velum, five.Digests[0], built("five", april, ""))
	w.Registry.Tag(velum, "4.0.0-rev1", again)
	s := w.poll()
	assert.Equal(t, april, *image(s, "velum.yaml", "velum").Created)
}

func TestHoldRevokesAnApproval(t *testing.T) {
	t.Parallel()
	w, first := offered(t)
	ctx, kill := context.WithCancel(t.Context())
	w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
	w.applyWith(ctx)
	require.Contains(t, w.Disk.JSON(), `"approved"`)
	w.Node.OnStop = nil
	w.restart()
	w.hold(record.PersonHold{Reason: "stop"})
	w.restart()
	_, s, err := w.agent.Resume(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Equal(t, status.StateStaged, s.State, "it is to be approved again")
	w.runs("velum.yaml", "velum", first.Digest)
}

func TestAlarmNamesTheConfiguredTag(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.obey(policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev7"})
	w.Node.PutPodManifest("other.yaml", podYAML("other", "other="+velum+":4.0.0-rev7"))
	s := w.check()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "other.yaml: the registry does not have this image, and the agent has never seen it there", "its own tag")
	assert.Contains(t, s.Reason, "velum.yaml: the registry does not have the tag that the configuration follows (follow: 4.0.0-rev7)")
	w.Policy.Rule = nil
	w.restart()
	w.Registry.Retract(velum, "4.0.0-rev1")
	assert.Contains(t, w.check().Reason, "the registry no longer has the followed tag")
}

// The rule was added after the answer: no source is asked, and the next best release is offered.
func TestNewRuleAppliesToAnEarlierAnswer(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	rebuilt := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.Registry.PublishBuild(velum, built("y", april.Add(2*time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	w.Grain.SetBusy("busy")
	w.Node.PutTemplate("new.yaml", podYAML("new", "new="+velum+":4.0.0-rev1"))
	w.check()
	w.obey(policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev2"}})
	s := w.observe()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered)
	assert.Equal(t, rebuilt.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	require.NotEmpty(t, image(s, "new.yaml", "new").Refused)
	assert.Equal(t, policy.RuleDeny, image(s, "new.yaml", "new").Refused[0].Rule)
	w.Registry.Counts()
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads, "what is refused by its name is not asked for")
	limit, err := tags.Parse("4.0.0-rev1")
	require.NoError(t, err)
	w.obey(policy.Rule{Updates: tags.Revision, Max: limit})
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads)
}

// A new pod does not start with a denied release after its file was deleted.
func TestDeletedPodManifestIsWrittenWithoutADeniedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "2.1")
		w.apply()
		w.Node.PutPodManifest("velum.yaml", nil)
		w.Node.Sync()
		w.observe()
		w.check()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

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

// A release that was read once and not offered is read again when the rules change.
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
		assert.Nil(t, i.Offered, "no source was asked for it this time")
		assert.Contains(t, i.Notes, "4.0.0-rev2 may be newer; the next check asks for it")
		assert.Equal(t, second.Digest, image(w.poll(), "velum.yaml", "velum").Offered.Digest)
	})
}

// The tag named another build during one poll, and names the denied one again.
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

// The next best release is found if the best one did not come up.
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
