// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

func parsed(t *testing.T, text string) tags.Tag {
	t.Helper()
	tag, err := tags.Parse(text)
	require.NoError(t, err)
	return tag
}

// A tag is refused by its name before it is resolved, a release by each of its names and its digest.
func TestRuleRefuses(t *testing.T) {
	t.Parallel()
	rel := release.Release{Tag: "5.0.0-rev1", Long: "5.0.0-rev1-build9.9", Digest: "sha256:d"}
	for name, c := range map[string]struct {
		rule         policy.Rule
		tag, release string // the rule that refuses it; empty if none does
	}{
		"nothing is said":       {policy.Rule{Updates: tags.Major}, "", ""},
		"updates":               {policy.Rule{Updates: tags.Minor}, "updates", ""},
		"max":                   {policy.Rule{Updates: tags.Major, Max: parsed(t, "4.1")}, "max", "max"},
		"max is itself":         {policy.Rule{Updates: tags.Major, Max: parsed(t, "5.0.0-rev1")}, "", ""},
		"max by long tag":       {policy.Rule{Updates: tags.Major, Max: parsed(t, "5.0.0-rev1-build5.1")}, "", "max"},
		"denied by tag":         {policy.Rule{Updates: tags.Major, Deny: []string{"4.*", "5.*-rev1"}}, "deny", "deny"},
		"denied by long tag":    {policy.Rule{Updates: tags.Major, Deny: []string{"*-build9.9"}}, "", "deny"},
		"denied by digest":      {policy.Rule{Updates: tags.Major, Deny: []string{"sha256:d"}}, "", "deny"},
		"allowed":               {policy.Rule{Updates: tags.Major, Allow: []string{"5.*"}}, "", ""},
		"allowed by long tag":   {policy.Rule{Updates: tags.Major, Allow: []string{"*-build9.9"}}, "", ""},
		"another is allowed":    {policy.Rule{Updates: tags.Major, Allow: []string{"4.*", "3.*"}}, "", "allow"},
		"allowed and denied":    {policy.Rule{Updates: tags.Major, Allow: []string{"5.*"}, Deny: []string{"*"}}, "deny", "deny"},
		"a bad pattern":         {policy.Rule{Updates: tags.Major, Deny: []string{"[5"}}, "", ""},
		"no pattern is no name": {policy.Rule{Updates: tags.Major, Deny: []string{""}}, "", ""},
	} {
		no, refused := c.rule.RefusesTag(parsed(t, "5.0.0-rev1"), tags.Major)
		assert.Equal(t, c.tag, no.Rule, name)
		assert.Equal(t, c.tag != "", refused, name)
		no, refused = c.rule.Refuses(rel)
		assert.Equal(t, c.release, no.Rule, name)
		assert.Equal(t, c.release != "", refused, name)
	}
	no, _ := policy.Rule{Updates: tags.Minor}.RefusesTag(parsed(t, "5.0.0-rev1"), tags.Major)
	assert.Equal(t, policy.Refusal{Tag: "5.0.0-rev1", Rule: "updates", Reason: "a major change is larger than updates: minor", Key: "updates: major"}, no)
	assert.Equal(t, "5.0.0-rev1 refused by updates: a major change is larger than updates: minor", no.String())
	no, _ = policy.Rule{Max: parsed(t, "4.1")}.Refuses(rel)
	assert.Equal(t, policy.Refusal{Tag: "5.0.0-rev1", Rule: "max", Reason: "above 4.1", Key: "max: 5.0.0-rev1"}, no)
	no, _ = policy.Rule{Allow: []string{"4.*", "3.*"}}.Refuses(rel)
	assert.Equal(t, policy.Refusal{Tag: rel.Long, Rule: "allow", Reason: "matches no pattern of 4.*, 3.*", Key: "allow"}, no)
}

// A new tag does not replace kubeadm upgrade.
func TestRuleRefusesKubeadmUpgrades(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kubeadm bool
		change  tags.Change
		allow   []string
		refused bool
	}{
		"a patch":            {true, tags.Patch, nil, false},
		"a minor":            {true, tags.Minor, nil, true},
		"a minor of another": {false, tags.Minor, nil, false},
		"it is allowed":      {true, tags.Major, []string{"v1.35.*"}, false},
		"another is allowed": {true, tags.Minor, []string{"v1.34.*"}, true},
	} {
		rules := policy.Policy{Rule: func(string) policy.Rule { return policy.Rule{Updates: tags.Major, Allow: c.allow} }}
		rule := rules.RuleForQuestion(release.Question{Kubeadm: c.kubeadm})
		no, refused := rule.RefusesTag(parsed(t, "v1.35.0"), c.change)
		assert.Equal(t, c.refused, refused, name)
		if refused {
			assert.Equal(t, policy.Refusal{
				Tag: "v1.35.0", Rule: "kubeadm", Key: "allow",
				Reason: "minor of a control plane that kubeadm manages: use kubeadm upgrade, or allow: [v1.35.0]",
			}, no, name)
		}
	}
	assert.Equal(t, policy.Rule{Updates: tags.Revision}, policy.Policy{}.RuleFor("r.io/a"), "without a configuration")
}

// An image that was tagged into a repository by mistake has the label of another one.
func TestForeignOrigin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		was, is string
		want    string // the reason; empty if it is not refused
	}{
		"the same":                          {"caasp/velum", "caasp/velum", ""},
		"no label any more":                 {"caasp/velum", "", ""},
		"another application":               {"caasp/velum", "caasp/grafana", "its label is caasp/grafana, the label of 4.0.0-rev1 is caasp/velum"},
		"what runs has none":                {"", "caasp/grafana", "its label is caasp/grafana, the repository is r.io/caasp/velum"},
		"what runs has none, by its name":   {"", "suse/velum", ""},
		"the beginning of the name":         {"caasp/velum", "caasp/velum-image", ""},
		"it always was of another place":    {"suse/sle15", "suse/sle15", ""},
		"another one than that other place": {"suse/sle15", "suse/sle12", "its label is suse/sle12, the label of 4.0.0-rev1 is suse/sle15"},
	} {
		known := release.Release{Tag: "4.0.0-rev1", Build: release.Build{Origin: c.was}}
		no, refused := policy.ForeignOrigin(known, release.Release{
			Repository: "r.io/caasp/velum", Tag: "4.0.0-rev2", Build: release.Build{Origin: c.is},
		})
		assert.Equal(t, c.want != "", refused, name)
		assert.Equal(t, c.want, no.Reason, name)
	}
}

func TestAwaitedRefusals(t *testing.T) {
	t.Parallel()
	publishing := policy.Refusal{Rule: policy.RulePublishing, Since: now}
	assert.True(t, publishing.IsAwaited(now.Add(24*time.Hour-1)))
	assert.False(t, publishing.IsAwaited(now.Add(24*time.Hour)), "it was withdrawn")
	assert.True(t, policy.Refusal{Rule: policy.RuleSignature}.IsAwaited(now))
	assert.True(t, policy.Refusal{Rule: policy.RuleOlder}.IsAwaited(now))
	assert.False(t, policy.Refusal{Rule: policy.RuleDeny}.IsAwaited(now))
}

// For each setting that would allow more, the highest tag is named.
func TestRefusalsByConfiguration(t *testing.T) {
	t.Parallel()
	major, minor := policy.Refusal{Tag: "6", Rule: "updates", Key: "updates: major"}, policy.Refusal{Tag: "5.9", Rule: "updates", Key: "updates: minor"}
	denied, older := policy.Refusal{Tag: "5.7", Rule: "deny", Key: "deny"}, policy.Refusal{Tag: "5", Rule: "older"}
	lower, also := policy.Refusal{Tag: "5.8", Rule: "updates", Key: "updates: minor"}, policy.Refusal{Tag: "5.6", Rule: "deny", Key: "deny"}
	assert.Equal(t, []policy.Refusal{major, minor, denied}, policy.ByConfiguration([]policy.Refusal{major, older, minor, lower, denied, also}))
	assert.Empty(t, policy.ByConfiguration([]policy.Refusal{older}))
}

func TestTagsComparedByARule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		was, is    string
		lower      bool
		change     tags.Change
		equivalent bool
	}{
		{"4.0.0-rev1", "4.0.0-rev2", false, tags.Revision, false},
		{"4.0.0-rev2", "4.0.0-rev1", true, tags.Rebuild, false},
		{"4.0.0", "4.0.0-rev2", false, tags.Rebuild, true},
		{"4.0.0-rev1", "4.0.0-rev1", false, tags.Rebuild, true},
		{"4.0.0", "5.0.0", false, tags.Major, false},
		{"latest", "5.0.0", false, tags.Rebuild, false},
		{"4.0.0", "latest", false, tags.Rebuild, false},
	} {
		name := c.was + " to " + c.is
		assert.Equal(t, c.lower, policy.IsLower(c.is, c.was, tags.Scheme{}), name)
		assert.Equal(t, c.change, policy.ReleaseChange(release.Release{Tag: c.was}, release.Release{Tag: c.is}, policy.Rule{}), name)
		assert.Equal(t, c.equivalent, policy.AreEquivalent(c.was, c.is, policy.Rule{}), name)
		assert.False(t, policy.AreEquivalent(c.was, c.is, policy.Rule{Follow: c.was}), "what is followed is equal to itself only")
	}
}

// OBS' build counter restarts when an image moves to another project.
func TestIsOlder(t *testing.T) {
	t.Parallel()
	later, earlier := now.AddDate(0, -1, 0), now.AddDate(0, -2, 0)
	long := func(tag string, at time.Time) release.Release {
		return release.Release{Tag: "4.0.0-rev1", Long: tag, Build: release.Build{Created: at}}
	}
	for name, c := range map[string]struct {
		was, is release.Release
		older   bool
		warns   bool
	}{
		"a higher build":                 {long("4.0.0-rev1-build1.1", earlier), long("4.0.0-rev1-build1.2", later), false, false},
		"a lower build":                  {long("4.0.0-rev1-build1.2", later), long("4.0.0-rev1-build1.1", earlier), true, false},
		"a lower one, created later":     {long("4.0.0-rev1-build1.2", earlier), long("4.0.0-rev1-build1.1", later), false, true},
		"a higher one, created earlier":  {long("4.0.0-rev1-build1.1", later), long("4.0.0-rev1-build1.2", earlier), false, true},
		"no long tag, created earlier":   {long("", later), long("", earlier), true, false},
		"no long tag, created later":     {long("", earlier), long("", later), false, false},
		"the same tag, created earlier":  {long("4.0.0-rev1-build1.1", later), long("4.0.0-rev1-build1.1", earlier), true, false},
		"a lower one, nothing else says": {long("4.0.0-rev1-build1.2", time.Time{}), long("4.0.0-rev1-build1.1", time.Time{}), true, false},
	} {
		older, warning := policy.IsOlder(c.was, c.is, tags.Scheme{}, now)
		assert.Equal(t, c.older, older, name)
		assert.Equal(t, c.warns, warning != "", "%s: %s", name, warning)
	}
}

func TestPolicyOfANode(t *testing.T) {
	t.Parallel()
	open, change := policy.Policy{}.IsWindowOpen(now)
	assert.True(t, open, "there is no window")
	assert.Zero(t, change)
	open, change = policy.Policy{Window: func(at time.Time) (bool, time.Time) { return false, at.Add(1) }}.IsWindowOpen(now)
	assert.False(t, open)
	assert.Equal(t, now.Add(1), change)
	p := policy.Policy{Values: map[string]string{"velum": "1", "r.io/velum": "2", "docker.io/library/velum": "3"}}
	assert.Equal(t, "1", p.Value("velum", "r.io/velum", "docker.io/library/velum"))
	assert.Equal(t, "2", p.Value("x", "r.io/velum", "docker.io/library/velum"))
	assert.Equal(t, "3", p.Value("x", "x", "docker.io/library/velum"))
	assert.Empty(t, p.Value("x", "x", "x"))
	assert.Equal(t, now, policy.Earlier(now, now.Add(1)))
	assert.Equal(t, now, policy.Earlier(now.Add(1), now))
	assert.True(t, policy.IsMinor("major"))
	assert.False(t, policy.IsMinor("patch"))
}

// The fingerprint changes exactly with the settings that affect requests to a source.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range []policy.Rule{
		{},
		{Updates: tags.Major},
		{Scheme: tags.SUSEOnly()},
		{Follow: "1"},
		{Allow: []string{"1"}},
		{Deny: []string{"1"}},
		{Max: parsed(t, "1.0")},
		{Allow: []string{"1", "2"}},
		{Allow: []string{"1 2"}},
	} {
		assert.False(t, seen[r.Fingerprint()], "%+v", r)
		seen[r.Fingerprint()] = true
		also := r
		also.Hold, also.Older, also.Signatures = "wait", true, policy.SignaturesRequire
		assert.Equal(t, r.Fingerprint(), also.Fingerprint())
	}
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	const repository = "registry.suse.com/caasp/v4/velum"
	for name, c := range map[string]struct {
		disk, target string
		known, same  bool
		want         string
	}{
		"no pod yet":                           {"", "4.0.0-rev1", false, false, ""},
		"the same":                             {"4.0.0-rev1", "4.0.0-rev1", true, true, ""},
		"the same tag, another digest":         {"4.0.0-rev1", "4.0.0-rev1", true, false, "rebuild"},
		"the same tag, nothing is known":       {"4.0.0-rev1", "4.0.0-rev1", false, false, ""},
		"another name for what runs":           {"4.0.0", "4.0.0-rev1", true, true, "convert"},
		"another name, nothing is known":       {"4.0.0", "4.0.0-rev1", false, false, "convert"},
		"the short tag moved on under the pod": {"4.0.0", "4.0.0-rev1", true, false, "revision"},
		"the build moved on under the pod":     {"4.0.0-rev1-build1.1", "4.0.0-rev1", true, false, "rebuild"},
		"a newer long tag":                     {"4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2", true, false, "rebuild"},
		"a newer revision":                     {"4.0.0-rev1", "4.0.0-rev2", true, false, "revision"},
		"a newer revision, nothing is known":   {"4.0.0-rev1", "4.0.0-rev2", false, false, "revision"},
		"a newer patch":                        {"4.0.0-rev1", "4.0.1-rev1", true, false, "patch"},
		"a newer minor":                        {"4.0.0-rev1", "4.1.0-rev1", true, false, "minor"},
		"a newer major":                        {"4.0.0-rev1", "5.0.0-rev1", true, false, "major"},
		"a lower one":                          {"4.0.1-rev1", "4.0.0-rev1", true, false, "major"},
		"a newer name of what runs":            {"4.0.0-rev1", "4.0.1-rev1", true, true, "convert"},
		"another spelling":                     {"v4.0.0-rev1", "4.0.0-rev1", true, false, "major"},
		"from an unrecognized tag":             {"latest", "4.0.0-rev1", true, false, "major"},
		"to an unrecognized tag":               {"4.0.0-rev1", "latest", true, false, "major"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var disk release.Reference
			if c.disk != "" {
				disk = release.Reference{Repository: repository, Tag: c.disk}
			}
			target := release.Release{Repository: repository, Tag: c.target}
			assert.Equal(t, c.want, policy.ChangeOf(disk, target, c.known, c.same, tags.Scheme{}))
		})
	}
	moved := release.Reference{Repository: "m.local/velum", Tag: "4.0.0-rev1"}
	target := release.Release{Repository: repository, Tag: "4.0.0-rev1"}
	assert.Equal(t, "convert", policy.ChangeOf(moved, target, true, true, tags.Scheme{}), "the same image from elsewhere")
	assert.Equal(t, "rebuild", policy.ChangeOf(moved, target, true, false, tags.Scheme{}), "the mirror has another digest")
}

var now = time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)

// TestImplausibleCreationTimes lists the creation times that tools for reproducible builds write.
func TestImplausibleCreationTimes(t *testing.T) {
	t.Parallel()
	times := map[string]struct {
		at   time.Time
		want bool
	}{
		"left out":                             {time.Time{}, false},
		"the year 1":                           {time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), false},
		"jib, bazel, SOURCE_DATE_EPOCH=0":      {time.Unix(0, 0), false},
		"jib: one second after 1970":           {time.Unix(1, 0), false},
		"buildpacks, nix: 1980":                {time.Date(1980, 1, 1, 0, 0, 1, 0, time.UTC), false},
		"SOURCE_DATE_EPOCH=315532800":          {time.Unix(315532800, 0), false},
		"zip: SOURCE_DATE_EPOCH=315619200":     {time.Unix(315619200, 0), false},
		"npm: 1985":                            {time.Date(1985, 10, 26, 8, 15, 0, 0, time.UTC), false},
		"a board without a clock: 2000":        {time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		"1970 in another zone":                 {time.Unix(0, 0).In(time.FixedZone("", 14*3600)), false},
		"before Docker":                        {time.Date(2013, 2, 28, 23, 59, 59, 0, time.UTC), false},
		"the first images":                     {time.Date(2013, 3, 1, 0, 0, 0, 0, time.UTC), true},
		"last year":                            {now.AddDate(-1, 0, 0), true},
		"now":                                  {now, true},
		"the future":                           {now.Add(time.Second), false},
		"the last year that the agent can say": {time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC), false},
	}
	for title, c := range times {
		assert.Equal(t, c.want, policy.IsPlausibleCreation(c.at, now), title)
		known := now.AddDate(-2, 0, 0)
		assert.Equal(t, c.want && c.at.After(known), policy.IsEarlier(
			release.Release{Build: release.Build{Created: known}}, release.Release{Build: release.Build{Created: c.at}}, now), title)
		assert.Equal(t, c.want && c.at.Before(known), policy.IsEarlier(
			release.Release{Build: release.Build{Created: c.at}}, release.Release{Build: release.Build{Created: known}}, now), title)
	}
}

func named(tag string, created time.Time) release.Release {
	return release.Release{Tag: tag, Digest: digest.FromString(tag), Build: release.Build{Created: created}}
}

// TestContradictionsOfNamesAndTimes uses tags of real repositories.
func TestContradictionsOfNamesAndTimes(t *testing.T) {
	t.Parallel()
	thisYear, lastYear := now.AddDate(0, -1, 0), now.AddDate(-1, 0, 0)
	cases := []struct {
		title    string
		was, rel release.Release
		want     string
	}{
		{"the scheme changed", named("1.2.2", thisYear), named("1.8.1259", lastYear), "newer by name"},
		{"a date as a version", named("2.1.0", thisYear), named("2021.12.10", lastYear), "newer by name"},
		{"a patch of an old minor", named("v1.33.9", thisYear), named("v1.34.2", lastYear), "newer by name"},
		{"a revision", named("4.0.0-rev1", thisYear), named("4.0.0-rev2", lastYear), "newer by name"},
		{"a build", named("4.0.0-rev1-build1.5", thisYear), named("4.0.0-rev1-build1.9", lastYear), "newer by name"},
		{"OBS began anew", named("4.0.0-rev1-build1.13", lastYear), named("4.0.0-rev1-build1.2", thisYear), "older by name"},
		{"a lower tag, created later", named("1.8.1259", lastYear), named("1.2.2", thisYear), "older by name"},
		{"as it should be", named("1.2.2", lastYear), named("1.8.1259", thisYear), ""},
		{"an older release", named("1.8.1259", thisYear), named("1.2.2", lastYear), ""},
		{"at the same time", named("1.2.2", thisYear), named("1.2.3", thisYear), ""},
		{"one is reproducible", named("1.2.2", thisYear), named("1.2.3", time.Unix(0, 0)), ""},
		{"the other is", named("1.2.2", time.Unix(315532800, 0)), named("1.2.3", lastYear), ""},
		{"both are", named("1.2.2", time.Unix(1, 0)), named("1.2.3", time.Unix(0, 0)), ""},
		{"one is of the future", named("1.2.2", now.AddDate(1, 0, 0)), named("1.2.3", thisYear), ""},
		{"no time", named("1.2.2", thisYear), named("1.2.3", time.Time{}), ""},
		{"the same tag", named("1.2.2", thisYear), named("1.2.2", lastYear), ""},
		{"no version", named("latest", thisYear), named("1.2.3", lastYear), ""},
		{"nothing is known", release.Release{}, named("1.2.3", lastYear), ""},
	}
	for _, c := range cases {
		got := policy.Contradiction(c.was, c.rel, tags.Scheme{}, now)
		if c.want == "" {
			assert.Empty(t, got, c.title)
			continue
		}
		assert.Contains(t, got, c.rel.Name()+" is "+c.want+" than "+c.was.Name(), c.title)
	}
	assert.Equal(t, "1.8.1259 is newer by name than 1.2.2, but was created earlier (2025-11-25T09:00:00Z, 2026-10-25T09:00:00Z)",
		policy.Contradiction(cases[0].was, cases[0].rel, tags.Scheme{}, now))
}

func TestReserveIsTheLargestOfThree(t *testing.T) {
	t.Parallel()
	const gb = int64(1e9)
	need := policy.SpaceNeeded{Compressed: gb, Unpacked: 2 * gb}
	for name, c := range map[string]struct {
		reserve     policy.Reserve
		size, least int64 // least bytes must be free for the pull
	}{
		"no reserve":     {policy.Reserve{}, 10 * gb, 3 * gb},
		"bytes":          {policy.Reserve{Bytes: gb, Percent: 5, HighMark: 99}, 10 * gb, 4 * gb},
		"percent":        {policy.Reserve{Bytes: gb, Percent: 20, HighMark: 85}, 100 * gb, 23 * gb},
		"high mark":      {policy.Reserve{Bytes: gb, Percent: 10, HighMark: 85}, 100 * gb, 18*gb + 1},
		"high mark of 0": {policy.Reserve{Percent: 1}, 100 * gb, 4 * gb},
	} {
		for _, others := range []int64{0, gb} {
			fs := policy.Filesystem{Path: "/var", Size: c.size, Free: c.least + others}
			_, short := c.reserve.Shortage(fs, need, others)
			assert.False(t, short, name)
			fs.Free--
			err, short := c.reserve.Shortage(fs, need, others)
			assert.True(t, short, name)
			require.ErrorIs(t, err, release.ErrHeld)
		}
	}
	_, short := policy.Reserve{Bytes: gb}.Shortage(policy.Filesystem{}, need, 0)
	assert.False(t, short, "an unknown size holds nothing")
	err, _ := policy.Reserve{Bytes: gb}.Shortage(policy.Filesystem{Path: "/var", Size: 9 * gb, Free: 999}, policy.SpaceNeeded{Compressed: 12e6, Unpacked: 1}, 0)
	assert.EqualError(t, err, "needs 12.0 MB to pull and 1 bytes to unpack with 1.0 GB of 9.0 GB kept free, but only 999 bytes are free on /var")
}
