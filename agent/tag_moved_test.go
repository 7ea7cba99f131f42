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

// built is a build of its own content.
func built(content string, created time.Time, origin string) release.Build {
	return release.Build{Config: digest.FromString(content), Size: 1, Created: created, Origin: origin}
}

var april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

// follows is a node that runs velum 4.0.0-rev1-build1.5 of April.
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// What was lost with the record is learnt again from what runs, not from zero.
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

// Without the record, and where the registry does not have any more what runs, the image on the node tells what it is.
func TestImageOfAnotherApplicationIsNotOfferedWithoutTheRecord(t *testing.T) {
	t.Parallel()
	later := april.Add(time.Hour)
	for name, c := range map[string]struct {
		was, now string
		tag      string
		lose     bool // the content on the node, too
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

func TestAwaitedBuildIsNamed(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.Publish(velum, "4.0.0-rev1-build1.6")
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	assert.Equal(t, []policy.Refusal{{
		Tag: "4.0.0-rev1-build1.6", Rule: policy.RulePublishing, Reason: "4.0.0-rev1 does not name it (yet)",
		Since: w.Clock.Now(), Holds: true,
	}}, i.Refused)
	assert.Equal(t, status.StateHeld, s.State)
	assert.Contains(t, s.Reason, "velum.yaml: publishing: "+velum+":4.0.0-rev1-build1.6: 4.0.0-rev1 does not name it (yet)")

	// What stays so was withdrawn.
	w.Clock.Add(24*time.Hour - time.Second)
	assert.Equal(t, status.StateHeld, w.check().State)
	w.Clock.Add(time.Second)
	s = w.check()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Len(t, image(s, "velum.yaml", "velum").Refused, 1)
}

func TestRules(t *testing.T) {
	t.Parallel()
	limit, err := tags.Parse("4.1")
	require.NoError(t, err)
	below, err := tags.Parse("5.0.0-rev1-build5.1")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		rule policy.Rule
		want string // tag of the offer
		by   string // rule of the first refusal
	}{
		"nothing is said":               {policy.Rule{Updates: tags.Major}, "5.0.0-rev1", ""},
		"updates":                       {policy.Rule{Updates: tags.Minor}, "4.2.0-rev1", policy.RuleUpdates},
		"max":                           {policy.Rule{Updates: tags.Major, Max: limit}, "4.1.0-rev2", policy.RuleMax},
		"max by long tag":               {policy.Rule{Updates: tags.Major, Max: below}, "4.2.0-rev1", policy.RuleMax},
		"denied by tag":                 {policy.Rule{Updates: tags.Major, Deny: []string{"5.*"}}, "4.2.0-rev1", policy.RuleDeny},
		"denied by long tag":            {policy.Rule{Updates: tags.Major, Deny: []string{"5.0.0-rev1-build9.9"}}, "4.2.0-rev1", policy.RuleDeny},
		"allowed":                       {policy.Rule{Updates: tags.Major, Allow: []string{"4.1.*", "4.0.*"}}, "4.1.0-rev2", policy.RuleAllow},
		"allowed by long tag":           {policy.Rule{Updates: tags.Major, Allow: []string{"*-build1.1"}}, "4.2.0-rev1", policy.RuleAllow},
		"nothing is allowed":            {policy.Rule{Updates: tags.Major, Allow: []string{"4.0.0-rev1"}}, "", policy.RuleAllow},
		"everything is denied":          {policy.Rule{Updates: tags.Major, Deny: []string{"*"}}, "", policy.RuleDeny},
		"a bad pattern matches nothing": {policy.Rule{Updates: tags.Major, Deny: []string{"[5"}}, "5.0.0-rev1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := follows(t, policy.Rule{Updates: tags.Revision})
			for n, tag := range []string{"4.0.0-rev2", "4.1.0-rev1", "4.1.0-rev2", "4.2.0-rev1", "5.0.0-rev1"} {
				build := "1.1"
				if tag == "5.0.0-rev1" {
					build = "9.9"
				}
				b := built(tag, april.Add(time.Duration(n+1)*time.Hour), "")
				w.Registry.PublishBuild(velum, b, tag, tag+"-build"+build)
			}
			w.Policy.Rule = func(string) policy.Rule { return c.rule }
			w.restart()
			s := w.check()
			i := image(s, "velum.yaml", "velum")
			if c.want == "" {
				assert.Nil(t, i.Offered, s.Reason)
				assert.NotEqual(t, status.StateFailed, s.State, s.Reason)
			} else {
				require.NotNil(t, i.Offered, s.Reason)
				assert.Contains(t, i.Offered.Tag, c.want+"-build")
			}
			if c.by == "" {
				assert.Empty(t, i.Refused)
				return
			}
			require.NotEmpty(t, i.Refused)
			assert.Equal(t, c.by, i.Refused[0].Rule)
		})
	}
}

func TestDeniedDigestIsNotOfferedUnderAnyTag(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	bad := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6", "4.0.0-rev2")
	rule := policy.Rule{Updates: tags.Revision, Deny: []string{bad.Digest.String()}}
	w.Policy.Rule = func(string) policy.Rule { return rule }
	w.restart()
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered, s.Reason)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleDeny, i.Refused[0].Rule)
	w.idle()

	rule.Deny = nil
	w.restart()
	w.Policy.Rule = func(string) policy.Rule { return rule }
	w.restart()
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

	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Rebuild, Follow: "4.0.0-rev3"} }
	w.restart()
	s = w.check()
	assert.Equal(t, "revision", image(s, "velum.yaml", "velum").Change)
	out, _ := w.apply("velum.yaml")
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)

	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Rebuild, Follow: "4.0.0-rev1"} }
	w.restart()
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

// A short tag that is followed for want of an intermediate one, as one may be
// away, goes to the intermediate tag of the newer version at once, and not in
// two updates.
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
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Equal(t, status.StateCurrent, w.check().State)
}
