// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

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
	_, _, code = s.run("promote", "stage", "prod", "--all", "--soaked", "24h")
	assert.Equal(t, exitNothing, code)

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
	_, _, code = s.run("unfreeze", "prod")
	assert.Equal(t, exitNothing, code)

	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")
	assert.Regexp(t, `HOST/caasp/velum +4.0.0-rev1-build1.2 .* 48 h +0 %\n$`, s.does("rollout", "prod"))
	assert.Regexp(t, `^~ HOST/caasp/velum:4.0.0-rev1-build1.2 +rollout paused\n`, s.does("rollout", "prod", "velum", "--pause"))
	assert.Regexp(t, `: \S+ paused the rollout of 1 release\n`, s.does("log", "prod"))
	assert.Regexp(t, `48 h +0 %, paused\n$`, s.does("rollout", "prod"))
	assert.Contains(t, s.does("inspect", "prod"), "rollout paused at 0 %")
	_, _, code = s.run("rollout", "prod", "velum", "--pause")
	assert.Equal(t, exitNothing, code)
	assert.Contains(t, s.does("rollout", "prod", "velum", "--resume", "--over", "96h"), "  rollout over 96 hours\n")
	assert.Regexp(t, `96 h +0 %\n$`, s.does("rollout", "prod"))
	s.does("rollout", "prod", "velum", "--pause")
	s.does("rollout", "prod", "velum", "--resume")
	assert.Regexp(t, `: \S+ resumed the rollout of 1 release\n`, s.does("log", "prod", "--limit", "1"))
	assert.Regexp(t, `: \S+ resumed the rollout of 1 release\n`, s.does("inspect", "prod", "--history"))
	s.does("rollout", "prod", "velum", "--over", "48h")
	assert.Regexp(t, `: \S+ changed the rollout of 1 release\n`, s.does("log", "prod", "--limit", "1"))
	_, errs, code = s.run("rollout", "prod", "velum:4.0.0-rev1-build1.1", "--pause")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "velum:4.0.0-rev1-build1.1: it has no rollout under way in prod")
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
	_, errs, code = s.run("inspect", "prod@99")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "prod-v00000099: the registry has no such version")
}
