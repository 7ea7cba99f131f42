// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// What runs is what a release is judged against: it is known as long as it runs,
// also where it ends again and again, which is why it was withdrawn.
func TestCrashingWithdrawnBuildIsReportedInEveryCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := follows(t, policy.Rule{Updates: tags.Revision})
		bad := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
		w.Node.Crash(bad.Digest, true)
		w.Node.Restart("velum.yaml", "velum") // kubelet takes it by itself
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

// Without long tags, a build of the year 2999 would be newer than all later ones.
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
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)

	w.Registry.PublishBuild(velum, built("old", april.Add(-time.Hour), ""), "4.0.0-rev1")
	i = image(w.check(), "velum.yaml", "velum")
	require.NotEmpty(t, i.Refused, "a time in the past is evidence")
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
}

// The pod manifest still has the short tag, for nobody has approved its
// conversion: what was moved to an older build is reported all the same.
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

	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev1"} }
	w.restart()
	s = w.check()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "what the configuration names is meant")
	assert.Equal(t, lower.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
}

// What ran when the source did not have it is learnt once the source has it.
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
	_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	require.Contains(t, w.Disk.JSON(), `"approved"`)
	w.Node.OnStop = nil
	w.restart()
	w.hold(record.PersonHold{Reason: "stop"})
	w.restart()
	_, s, err := w.agent.Unhold(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Equal(t, status.StateStaged, s.State, "it is to be approved again")
	w.runs("velum.yaml", "velum", first.Digest)
}

func TestAlarmNamesTheConfigurationsTag(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev7"} }
	w.restart()
	w.Node.PutPodManifest("other.yaml", podYAML("other", "other="+velum+":4.0.0-rev7"))
	s := w.check()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "other.yaml: the followed tag is not found, and as far as is known it never was there", "its own tag")
	assert.Contains(t, s.Reason, "velum.yaml: the tag that the configuration follows is not there (follow: 4.0.0-rev7)")
	w.Policy.Rule = nil
	w.restart()
	w.Registry.Retract(velum, "4.0.0-rev1")
	assert.Contains(t, w.check().Reason, "the followed tag is gone")
}

// The rule came after the answer: no source is asked, and the next best release is offered.
func TestNewRuleAppliesToAnEarlierAnswer(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	rebuilt := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.Registry.PublishBuild(velum, built("y", april.Add(2*time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	w.Grain.SetBusy("busy")
	w.Node.PutTemplate("new.yaml", podYAML("new", "new="+velum+":4.0.0-rev1"))
	w.check()
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev2"}} }
	w.restart()
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
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Max: limit} }
	w.restart()
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads)
}

// What did not come up is not what a pod begins with, once its file was deleted.
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
