// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each line of a result says what became of the release, also if the channel offers a newer one.
func TestResultSaysWhatBecameOfARelease(t *testing.T) {
	t.Parallel()
	const older, newer = "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2"
	s := newShop(t)
	s.push("velum", older, newer)
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/velum:"+older)
	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")
	s.does("add", "stage", "HOST/velum:"+newer)
	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")

	out := s.does("rollout", "prod", "--pause")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +rollout paused$`, out)
	assert.Regexp(t, `(?m)^~ HOST/velum:`+older+` +rollout paused; older than `+newer+`, which the channel offers too$`, out)
	out = s.does("rollout", "prod", "--over", "12h")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +rollout over 12 hours, paused$`, out)
	out = s.does("rollout", "prod", "velum:"+older, "--resume")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+older+` +rollout over 12 hours; older than `, out)
	s.does("rollout", "prod", "--now")

	s.does("add", "stage", "HOST/velum:"+newer, "--set", "caasp")
	out = s.does("promote", "stage", "prod", "velum")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +now in set "caasp"$`, out, "it had no rollout that could end")
}
