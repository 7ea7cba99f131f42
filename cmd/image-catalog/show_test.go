// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Two versions of one channel are told apart, as two channels are.
func TestDiffNamesTheVersionThatWithdrew(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.2") // both versions have the same newest release
	s.does("withdraw", "stage", "velum:4.0.0-rev1-build1.1", "--reason", "bsc#1")
	assert.Contains(t, s.does("diff", "stage@3", "stage@4"), "withdrawn from stage@4: bsc#1\n")
	assert.Contains(t, s.does("diff", "stage", "stage@3"), "withdrawn from stage@4: bsc#1\n")
	assert.Contains(t, s.does("diff", "stage@4", "stage@3", "--output", "json"), `"withdrawnFrom": "stage@4"`)
}

// An old version does not have the changes that came later: they do not wait.
func TestInspectOfAnOldVersion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.2")
	out := s.does("inspect", "stage@2")
	assert.Contains(t, out, "4.0.0-rev1-build1.1")
	assert.NotContains(t, out, "Not published yet")
	assert.Contains(t, s.does("inspect", "stage@2", "--output", "json"), `"waiting": []`)
	assert.Contains(t, s.does("inspect", "stage", "--output", "json"), `"waiting": []`)
}

// A release that the channel does not list is an error, and not an empty page.
func TestInspectOfAReleaseThatIsNotListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	for _, word := range []string{"velum:4.0.0-rev1-build1.7", "HOST/velum:4.0.0-rev1-build1.7"} {
		s.ends(exitFailed, "HOST/velum:4.0.0-rev1-build1.7: channel stage does not list it, did you mean 4.0.0-rev1-build1.1?", "inspect", "stage", word, "--output", "json")
	}
	out := s.does("inspect", "stage", "velum:4.0.0-rev1-build1.1")
	assert.Contains(t, out, "4.0.0-rev1-build1.1")
}

// One command answers who brought a digest to prod, and who withdrew it.
func TestWhoDidWhat(t *testing.T) {
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.push("caasp/etcd", "3.4-rev1-build1.1")
	t.Setenv("GITHUB_ACTOR", "anna")
	t.Setenv("GITHUB_SERVER_URL", "https://x:y@forge.example.com")
	t.Setenv("GITHUB_REPOSITORY", "caasp/images")
	t.Setenv("GITHUB_RUN_ID", "42")
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.1", "HOST/caasp/etcd:3.4-rev1-build1.1")
	s.does("promote", "stage", "prod", "--all", "--reason", "release day")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.2")
	s.does("promote", "stage", "prod", "velum")
	s.does("withdraw", "prod", "velum:4.0.0-rev1-build1.1", "--reason", "bsc#1", "--instead", "4.0.0-rev1-build1.2", "--by", "bert")

	var log []catalog.Entry
	require.NoError(t, json.Unmarshal([]byte(s.does("log", "prod", "velum:4.0.0-rev1-build1.1", "--output", "json")), &log))
	require.Len(t, log, 2)
	d := log[0].Changes[0].Release.Digest.String()
	text := s.does("log", "prod", d)
	assert.Regexp(t, `^version 4, .* ago\): bert withdrew 1 release
  run: https://forge.example.com/caasp/images/actions/runs/42
  HOST/caasp/velum:4.0.0-rev1-build1.1 +sha256:\w{12} +withdrawn: bsc#1, instead 4.0.0-rev1-build1.2

version 2, .* ago\): anna promoted 1 release
  reason: release day
  run: https://forge.example.com/caasp/images/actions/runs/42
  HOST/caasp/velum:4.0.0-rev1-build1.1 +sha256:\w{12}
$`, text)
	text = s.does("inspect", "prod", "etcd", "--history")
	assert.Contains(t, text, "): anna promoted 1 release\n")
	assert.NotContains(t, text, "withdrew", "of other images")
}

// A release manager freezes prod, reverts it, and steers a rollout.
func TestPoliciesOfAChannel(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.1")
	s.does("promote", "stage", "prod", "velum")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.2")
	_, errs, code := s.run("promote", "stage", "prod", "velum:4.0.0-rev1-build1.2", "--soaked", "24h")
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `channel stage has offered it since .* only, want 24 hours`, errs)
	s.ends(exitNothing, "", "promote", "stage", "prod", "--all", "--soaked", "24h")

	s.does("freeze", "prod", "--until", "8h", "--reason", "holidays", "--by", "anna")
	_, errs, code = s.run("promote", "stage", "prod", "velum")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "prod: the channel is frozen until ")
	assert.Contains(t, errs, "hint: `image-catalog log CHANNEL` shows who froze it")
	assert.Contains(t, s.does("inspect", "prod"), "Frozen:  until ")
	assert.Regexp(t, `anna froze the channel until .*\n  reason: holidays\n`, s.does("log", "prod"))
	s.does("unfreeze", "prod", "--by", "anna")
	log := s.does("log", "prod")
	assert.Contains(t, log, "anna unfroze the channel")
	assert.Regexp(t, `version 1, .*: \S+ made the channel, which never expires`, log)
	s.ends(exitNothing, "", "unfreeze", "prod")

	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")
	assert.Regexp(t, `HOST/caasp/velum +4.0.0-rev1-build1.2 .* 48 h +0 %\n$`, s.does("rollout", "prod"))
	assert.Regexp(t, `^~ HOST/caasp/velum:4.0.0-rev1-build1.2 +rollout paused\n`, s.does("rollout", "prod", "velum", "--pause"))
	assert.Regexp(t, `: \S+ paused the rollout of 1 release\n`, s.does("log", "prod"))
	assert.Regexp(t, `48 h +0 %, paused\n$`, s.does("rollout", "prod"))
	assert.Contains(t, s.does("inspect", "prod"), "rollout paused at 0 %")
	s.ends(exitNothing, "", "rollout", "prod", "velum", "--pause")
	assert.Contains(t, s.does("rollout", "prod", "velum", "--resume", "--over", "96h"), "  rollout over 96 hours\n")
	assert.Regexp(t, `96 h +0 %\n$`, s.does("rollout", "prod"))
	s.does("rollout", "prod", "velum", "--pause")
	s.does("rollout", "prod", "velum", "--resume")
	assert.Regexp(t, `: \S+ resumed the rollout of 1 release\n`, s.does("log", "prod", "--limit", "1"))
	assert.Regexp(t, `: \S+ resumed the rollout of 1 release\n`, s.does("inspect", "prod", "--history"))
	s.does("rollout", "prod", "velum", "--over", "48h")
	assert.Regexp(t, `: \S+ changed the rollout of 1 release\n`, s.does("log", "prod", "--limit", "1"))
	s.ends(exitFailed, "velum:4.0.0-rev1-build1.1: it has no rollout under way in prod", "rollout", "prod", "velum:4.0.0-rev1-build1.1", "--pause")
	assert.Contains(t, s.does("rollout", "prod", "--now"), "  rollout ended: all nodes may apply it\n")
	assert.Regexp(t, `: \S+ ended the rollout of 1 release\n`, s.does("log", "prod", "--limit", "1"))
	assert.Regexp(t, `: \S+ promoted 1 release\n(?s:.*): \S+ froze`, s.does("log", "prod"))
	out, _, code := s.run("rollout", "prod")
	assert.Equal(t, exitNothing, code)
	assert.Equal(t, "No rollout is under way.\n", out)

	assert.Regexp(t, `4.0.0-rev1-build1.2 +4.0.0-rev1-build1.1 +rebuild`, s.does("diff", "prod", "prod@2"))
	assert.Contains(t, s.does("promote", "prod@2", "--revert", "--reason", "bsc#1"), "- HOST/caasp/velum:4.0.0-rev1-build1.2")
	assert.Contains(t, s.does("inspect", "prod", "velum"), "withdrawn: bsc#1, instead 4.0.0-rev1-build1.1")
	out, _, code = s.run("promote", "prod", "--revert")
	assert.Equal(t, exitNothing, code, "a job that repeats it does not undo itself")
	assert.Regexp(t, `HOST/caasp/velum:4.0.0-rev1-build1.2 +not brought back: withdrawn: bsc#1\n`, out)
	s.ends(exitFailed, "prod-v00000099: the registry has no such version", "inspect", "prod@99")
}

// An op may change the rollouts of several releases in different ways. The log may have dropped their promotions.
func TestSteersOf(t *testing.T) {
	t.Parallel()
	paused, resumed := &catalog.Rollout{Hours: 48, Paused: &catalog.Pause{}}, &catalog.Rollout{Hours: 48}
	entry := func(tag string, rollouts map[string]*catalog.Rollout, images ...string) (e catalog.Entry) {
		e.Do, e.Tag = catalog.ActionPromote, tag
		for _, image := range images {
			r := catalog.Release{Tag: "1.0", Rollout: rollouts[image]}
			e.Changes = append(e.Changes, catalog.Change{Image: image, Release: r})
		}
		return e
	}
	got := steersOf([]catalog.Entry{
		entry("paused", map[string]*catalog.Rollout{"a": paused}, "a"),
		entry("mixed", map[string]*catalog.Rollout{"a": resumed, "b": paused}, "a", "b"),
		entry("both", map[string]*catalog.Rollout{"a": paused, "c": paused}, "a", "c"),
		entry("promoted", map[string]*catalog.Rollout{"d": resumed}, "d"),
		entry("ended", nil, "a", "b"),
	})
	assert.Equal(t, map[string]string{
		"paused": "paused the rollout of", "mixed": "changed the rollout of", "both": "paused the rollout of",
		"ended": "ended the rollout of",
	}, got)
}
