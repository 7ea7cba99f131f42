// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

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

// TestContradictionWaitsForApprovalWhileAnotherPodFailed: the state failed also names the pods that wait for a person.
func TestContradictionWaitsForApprovalWhileAnotherPodFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Auto, w.Policy.Rule = true, func(string) policy.Rule { return policy.Rule{Updates: tags.Major} }
	build := func(name string, year int) release.Build {
		return release.Build{Config: digest.FromString(name), Size: 1, Created: time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)}
	}
	w.Registry.PublishBuild(velum, build("first", 2026), "1.2.2")
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":1.2.2"))
	w.Node.PutPodManifest("typo.yaml", podYAML("typo", "main="+velum+":9"))
	w.Policy.Manage = map[string]bool{"velum.yaml": true}
	w.check()
	w.Registry.PublishBuild(velum, build("second", 2025), "1.8.1259")
	s := w.check()
	require.Equal(t, status.StateFailed, s.State, s.Reason)
	assert.Contains(t, s.Reason, "waiting for approval: velum.yaml (minor)")
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
