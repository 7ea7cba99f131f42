// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The keys of stage do not count for prod: who uses them as before is told how.
func TestTrustNamesTheKeysOfFrom(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	for _, name := range []string{"ci", "prod"} {
		_, errs, code := run(t, "keygen", filepath.Join(dir, name))
		require.Zero(t, code, errs)
	}
	ci, prod := filepath.Join(dir, "ci"), filepath.Join(dir, "prod")
	s.push("velum", "4.0.0-rev1-build1.1")
	s.push("evil", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--key", ci+".key")
	s.does("init", "prod", "--key", prod+".key")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1", "--key", ci+".key")
	out := filepath.Join(dir, "out")
	_, errs, code := s.run("promote", "stage", "prod", "velum", "--out", out, "--trust", ci+".pub", "--trust", prod+".pub")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--trust FILE names the keys of stage only; the keys of prod are missing: use --trust prod=FILE for them")
	_, errs, code = s.run("promote", "stage", "prod", "velum", "--out", out, "--trust", "prod="+prod+".pub")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "the keys of stage are missing: use --trust FILE for them")
	s.does("promote", "stage", "prod", "velum", "--out", out, "--trust", ci+".pub", "--trust", "prod="+prod+".pub")
	text, errs, code := run(t, "publish", out, "--dry-run")
	require.Zero(t, code, errs)
	assert.Regexp(t, `\+ \S+/velum:4.0.0-rev1-build1.1`, text)
	assert.Regexp(t, `\* also in this version: .* promoted or steered \S+/velum:4.0.0-rev1-build1.1 at `, text, "what they sign")

	// Who has CI's key brings nothing into prod.
	s.does("add", "prod", "HOST/evil:4.0.0-rev1-build1.1", "--key", ci+".key", "--trust", prod+".pub")
	_, errs, code = s.run("promote", "stage", "prod", "velum", "--key", prod+".key", "--trust", ci+".pub")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "prod: no valid signature")
	assert.Contains(t, errs, "hint: version 1 is the newest one that your keys signed: --base 1 builds on it")
	s.does("promote", "stage", "prod", "velum", "--key", prod+".key", "--trust", ci+".pub", "--base", "1")
	listed := s.does("inspect", "prod", "--trust", prod+".pub")
	assert.Contains(t, listed, "HOST/velum")
	assert.NotContains(t, listed, "HOST/evil")

	_, errs, code = s.run("refresh", "prod", "--key", prod+".key", "--require", "-1")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--require -1: want at least 1")
}

// A pipeline's variable of another CI system is not believed.
func TestWhoPublishesIsWhomTheRunningSystemNames(t *testing.T) {
	for _, name := range []string{
		"GITLAB_CI", "CI_JOB_URL", "GITLAB_USER_LOGIN", "GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_ACTOR", "JENKINS_URL", "BUILD_URL", "BUILD_USER",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("USER", "root")
	assert.Equal(t, "root", publisherName())
	assert.Empty(t, runURL())
	t.Setenv("BUILD_URL", "https://anna:s3cret@jenkins.example.com/job/7/?token=1#top")
	assert.Equal(t, "https://jenkins.example.com/job/7/", runURL())
	t.Setenv("BUILD_URL", "https://jenkins.example.com:port/")
	assert.Empty(t, runURL())
	t.Setenv("GITHUB_ACTOR", "mallory")
	t.Setenv("GITHUB_SERVER_URL", "https://mallory.example.com")
	assert.Equal(t, "mallory", publisherName())
	t.Setenv("GITLAB_USER_LOGIN", "anna")
	t.Setenv("CI_JOB_URL", "https://gitlab.example.com/-/jobs/7")
	assert.Equal(t, "anna", publisherName())
	assert.Equal(t, "https://gitlab.example.com/-/jobs/7", runURL())
}
