// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
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
	s := w.resume()
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

// built returns a build whose image has this content.
func built(content string, created time.Time, origin string) release.Build {
	return release.Build{Config: digest.FromString(content), Size: 1, Created: created, Origin: origin}
}

var april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

// follows returns a node that runs velum 4.0.0-rev1-build1.5 of April.
func follows(t *testing.T, rule policy.Rule) *world {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return rule }
	w.Registry.PublishBuild(velum, built("five", april, "caasp/v4/velum"), "4.0.0-rev1", "4.0.0-rev1-build1.5")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Registry.Counts()
	return w
}

func TestTagMovedToAnOlderBuildIsReportedAndNotFollowed(t *testing.T) {
	t.Parallel()
	revision := policy.Rule{Updates: tags.Revision}
	older := policy.Rule{Updates: tags.Revision, Older: true}
	for name, c := range map[string]struct {
		rule    policy.Rule
		build   release.Build
		long    string
		offered bool
		note    string
	}{
		"a lower build":                                {revision, built("x", april.Add(-time.Hour), ""), "4.0.0-rev1-build1.3", false, ""},
		"a lower build without a time":                 {revision, built("x", time.Time{}, ""), "4.0.0-rev1-build1.3", false, ""},
		"a lower build of the same time":               {revision, built("x", april, ""), "4.0.0-rev1-build1.3", false, ""},
		"allowed":                                      {older, built("x", april.Add(-time.Hour), ""), "4.0.0-rev1-build1.3", true, ""},
		"no long tag, created earlier":                 {revision, built("x", april.Add(-time.Hour), ""), "", false, ""},
		"no long tag, no time":                         {revision, built("x", time.Time{}, ""), "", true, ""},
		"a counter that began anew":                    {revision, built("x", april.Add(time.Hour), ""), "4.0.0-rev1-build1.1", true, "created later"},
		"higher, but created earlier":                  {revision, built("x", april.Add(-time.Hour), ""), "4.0.0-rev1-build2.1", true, "created earlier"},
		"higher and later":                             {revision, built("x", april.Add(time.Hour), ""), "4.0.0-rev1-build1.6", true, ""},
		"the long tag was moved to an earlier build":   {revision, built("x", april.Add(-time.Hour), ""), "4.0.0-rev1-build1.5", false, ""},
		"the long tag was moved to one without a time": {revision, built("x", time.Time{}, ""), "4.0.0-rev1-build1.5", true, ""},
		"the same image in another, earlier manifest":  {revision, built("five", april.Add(-time.Hour), ""), "4.0.0-rev1-build1.3", false, ""},
	} {
		parallel(t, name, func(t *testing.T) {
			w := follows(t, c.rule)
			moved := w.Registry.PublishBuild(velum, c.build, "4.0.0-rev1")
			if c.long != "" {
				w.Registry.Tag(velum, c.long, moved.Digest)
			}
			s := w.poll()
			i := image(s, "velum.yaml", "velum")
			if c.offered {
				require.NotNil(t, i.Offered, s.Reason)
				assert.Equal(t, moved.Digest, i.Offered.Digest)
			} else {
				assert.Nil(t, i.Offered, s.Reason)
				same := c.build.Config == digest.FromString("five")
				assert.Equal(t, map[bool]status.State{true: status.StateCurrent, false: status.StateHeld}[same], s.State, s.Reason)
				assert.Empty(t, w.Node.Names(moved.Digest), "not even staged")
			}
			if c.build.Config != digest.FromString("five") && !c.offered {
				require.Len(t, i.Refused, 1)
				assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
			}
			if c.note == "" {
				assert.Empty(t, i.Notes)
			} else {
				require.NotEmpty(t, i.Notes)
				assert.Contains(t, i.Notes[0], c.note)
			}
			w.observe()
			w.idle()
		})
	}
}

// State lost with the record is rebuilt from the running release, not from nothing.
func TestTagMovedToAnOlderBuildIsDetectedWithoutTheRecord(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	lower := w.Registry.PublishBuild(velum, built("x", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
	w.Disk.Lose()
	w.restart()
	w.poll()
	s := w.poll()
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, lower.Long, i.Refused[0].Tag)
	w.Registry.Counts()
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads, "asked once what runs")
	assert.Zero(t, w.Registry.Counts().Describes)
}

// Without the record and the running release in the registry, the image on the node describes it.
func TestImageOfAnotherApplicationIsNotOfferedWithoutTheRecord(t *testing.T) {
	t.Parallel()
	later := april.Add(time.Hour)
	for name, c := range map[string]struct {
		was, now string
		tag      string
		lose     bool // lose the content on the node, too
		down     bool
		want     bool
	}{
		"a rebuild of another one":             {"caasp/v4/velum", "caasp/v4/grafana", "4.0.0-rev1", false, false, false},
		"a revision of another one":            {"caasp/v4/velum", "caasp/v4/grafana", "4.0.0-rev2", false, false, false},
		"the pod is down":                      {"caasp/v4/velum", "caasp/v4/grafana", "4.0.0-rev1", false, true, false},
		"what runs has no label":               {"", "caasp/v4/grafana", "4.0.0-rev1", false, false, false},
		"what runs has lost its content":       {"caasp/v4/velum", "caasp/v4/grafana", "4.0.0-rev1", true, false, false},
		"the same":                             {"caasp/v4/velum", "caasp/v4/velum", "4.0.0-rev1", false, false, true},
		"the label always named another place": {"suse/sle15", "suse/sle15", "4.0.0-rev1", false, false, true},
		"no label any more":                    {"caasp/v4/velum", "", "4.0.0-rev1", false, false, true},
	} {
		parallel(t, name, func(t *testing.T) {
			w := newWorld(t)
			first := w.Registry.PublishBuild(velum, built("five", april, c.was), "4.0.0-rev1", "4.0.0-rev1-build1.5")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
			require.Equal(t, status.StateCurrent, w.check().State)
			w.Registry.Vanish(velum, first.Digest)
			next := w.Registry.PublishBuild(velum, built("x", later, c.now), "4.0.0-rev1", c.tag, c.tag+"-build9.1")
			if c.lose {
				w.Node.Lose(first.Digest)
			}
			if c.down {
				w.Node.SetKubelet(false)
				w.Node.PowerOff()
			}
			w.Disk.Lose()
			w.restart()
			i := image(w.check(), "velum.yaml", "velum")
			if c.want {
				require.NotNil(t, i.Offered)
				assert.Equal(t, next.Digest, i.Offered.Digest)
				return
			}
			assert.Nil(t, i.Offered)
			assert.False(t, w.Node.Pinned(velum, next.Digest))
		})
	}
}

func TestDeniedDigestIsNotOfferedUnderAnyTag(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	bad := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6", "4.0.0-rev2")
	rule := policy.Rule{Updates: tags.Revision, Deny: []string{bad.Digest.String()}}
	w.obey(rule)
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered, s.Reason)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleDeny, i.Refused[0].Rule)
	w.idle()

	rule.Deny = nil
	w.restart()
	w.obey(rule)
	s = w.observe()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "the rule counts that is in force now")
}

func TestFollowedTagOfTheConfigurationWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for rev := 1; rev <= 3; rev++ {
		w.Registry.PublishBuild(velum, built(fmt.Sprint(rev), april.Add(time.Duration(rev)*time.Hour), ""), fmt.Sprintf("4.0.0-rev%d", rev))
	}
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Rebuild, Follow: "4.0.0-rev1"} }
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev2"))
	w.Node.PutPodManifest("other.yaml", podYAML("other", "velum="+velum+":4.0.0-rev3"))
	s := w.check()
	assert.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.0-rev1\n", s.Reason)
	assert.Equal(t, "4.0.0-rev3", image(s, "other.yaml", "velum").Follow, "what is not ours stays as it is written")

	w.obey(policy.Rule{Updates: tags.Rebuild, Follow: "4.0.0-rev3"})
	s = w.check()
	assert.Equal(t, "revision", image(s, "velum.yaml", "velum").Change)
	w.applies("velum.yaml")

	w.obey(policy.Rule{Updates: tags.Rebuild, Follow: "4.0.0-rev1"})
	s = w.check()
	assert.Equal(t, "major", image(s, "velum.yaml", "velum").Change, "down, because it is asked for: look twice")
}

func TestOfferNamesTheHostThatAnswered(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	s := w.poll()
	assert.NotEmpty(t, image(s, "velum.yaml", "velum").Host)
	want := image(s, "velum.yaml", "velum").Host
	w.restart()
	assert.Equal(t, want, image(w.observe(), "velum.yaml", "velum").Host, "also of a remembered one")
}

// A pod that follows a short tag because the intermediate one is missing moves to the intermediate tag of the newer
// version in one update, not in two.
func TestNewerShortTagIsOfferedByItsIntermediateTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.Registry.Publish(velum, "4.0.0")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	w.Registry.Release(velum, "4.0.1", 1, "1.1")
	w.check()
	assert.Contains(t, w.Node.WaitingFile("velum.yaml"), velum+":4.0.1-rev1\n")
	w.applies()
	assert.Equal(t, status.StateCurrent, w.check().State)
}

// A release above the formerly followed tag may be below the one followed now.
func TestReplacedReleaseIsNotNewer(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	for _, rev := range []string{"2", "3"} {
		w.Registry.PublishBuild(velum, built(rev, april.Add(time.Hour), ""), "4.0.0-rev"+rev, "4.0.0-rev"+rev+"-build1.1")
	}
	w.check()
	w.applies()
	w.obey(policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev3*"}})
	i := image(w.observe(), "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	assert.Empty(t, i.Notes)
}

// A tag in the configuration may be below the running release: an admin chose it.
func TestFollowedTagMayBeLower(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	w.check()
	w.applies()
	w.obey(policy.Rule{Updates: tags.Same, Follow: "4.0.0-rev1"})
	i := image(w.check(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	assert.Equal(t, "4.0.0-rev1-build1.5", i.Offered.Tag)
}

// 1.8.1259 has an old tag scheme and was created a year before 1.2.2. policy.TestContradictionsOfNamesAndTimes,
// policy.TestImplausibleCreationTimes and plan.TestAppliedOffers list the contradictions and what allows them.
func TestModeAutoLeavesAContradictionToAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Auto, w.Policy.Rule = true, func(string) policy.Rule { return policy.Rule{Updates: tags.Major} }
		first := w.Registry.PublishBuild(velum, built("first", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), ""), "1.2.2")
		w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":1.2.2"))
		w.Node.Sync()
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		w.check()
		second := w.Registry.PublishBuild(velum, built("second", time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC), ""), "1.8.1259")
		s := w.check()
		w.runs("velum.yaml", "velum", first.Digest)
		note := "1.8.1259 is newer by name than 1.2.2, but was created earlier (2025-03-01T00:00:00Z, 2026-03-01T00:00:00Z)"
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "contradiction: "+note)
		i := image(s, "velum.yaml", "velum")
		assert.Contains(t, i.Notes, note)
		assert.Equal(t, status.Explained([]status.Hold{{Name: status.HoldContradiction, Image: velum, Reason: note}}), i.Holds)
		w.idle()

		w.applies()
		w.runs("velum.yaml", "velum", second.Digest)
		w.restart()
		s = w.observe()
		assert.Equal(t, status.ResultApplied, s.History[0].Result)
		assert.Equal(t, note, s.History[0].Reason)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}
