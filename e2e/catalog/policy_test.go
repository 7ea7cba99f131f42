// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A node applies by itself what its publisher calls important, and leaves the rest to a person.
func TestNodeAppliesWhatIsImportantByItself(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	n.WriteFile(story.ConfigFile, n.ReadFile(story.ConfigFile)+"apply:\n  mode: auto\n  minSeverity: important\n")
	require.Zero(t, n.Agent("reload").Code)
	p.build(t, "4.0.0-rev1-build1.2", "--severity", "important", "--fixes", "CVE-2026-1234,bsc#1234567")
	p.build(t, "4.0.0-rev1-build1.3", "--severity", "low")
	p.promote(t, "4.0.0-rev1-build1.3")
	story.Check(t, n)
	n.WaitAnswer(port, "4.0.0-rev1-build1.3")
	out := n.Agent("history")
	assert.Contains(t, out.Stdout, "important; fixes CVE-2026-1234, bsc#1234567")

	p.build(t, "4.0.0-rev1-build1.4", "--severity", "moderate", "--fixes", "CVE-2026-4321", "--note", "a slow query")
	p.promote(t, "4.0.0-rev1-build1.4")
	s := story.Check(t, n)
	require.Equal(t, status.StateHeld, s.State, s.Reason)
	require.Len(t, s.PodManifests[0].Holds, 1)
	assert.Equal(t, status.HoldSeverity, s.PodManifests[0].Holds[0].Name)
	out = n.Agent("status")
	assert.Contains(t, out.Stdout, "moderate; fixes CVE-2026-4321")
	assert.Contains(t, out.Stdout, "4.0.0-rev1-build1.4: a slow query")
	out = n.Agent("changes", "velum")
	require.Zero(t, out.Code, out.Stderr)
	assert.Contains(t, out.Stdout, "No package changes")
	require.Zero(t, n.Agent("apply", "velum").Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.4")
}

// A node waits while a rollout is paused, takes the release when the rollout ends, and goes back when prod is reverted. The
// log says who did what, and in which CI job.
func TestNodeFollowsThePoliciesOfAChannel(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	p.env = append(p.env, "GITLAB_USER_LOGIN=anna", "CI_JOB_URL=https://gitlab.example.com/caasp/images/-/jobs/7")
	n.WriteFile(story.ConfigFile, strings.Replace(n.ReadFile(story.ConfigFile), "channel: prod", "channel: prod\n  allowLower: true", 1))
	require.Zero(t, n.Agent("reload").Code)

	p.build(t, "4.0.0-rev1-build1.2")
	p.does(t, "promote", "stage", "prod", "velum", "--rollout", "48h", "--key", p.key)
	p.does(t, "rollout", "prod", "velum", "--pause", "--reason", "bsc#1199876?", "--key", p.key)
	s := story.Check(t, n)
	assert.Zero(t, story.ImageOf(t, s, "velum.yaml").RolloutAt, "a paused rollout has no time")
	assert.Equal(t, []string{"the publisher paused the rollout of 4.0.0-rev1-build1.2"}, story.ImageOf(t, s, "velum.yaml").Notes)
	p.does(t, "rollout", "prod", "velum", "--resume", "--over", "96h", "--key", p.key)
	s = story.Check(t, n)
	at := story.ImageOf(t, s, "velum.yaml").RolloutAt
	assert.WithinRange(t, at, time.Now().Add(-time.Minute), time.Now().Add(96*time.Hour))
	p.does(t, "rollout", "prod", "--now", "--key", p.key)
	s = story.Check(t, n)
	assert.Zero(t, story.ImageOf(t, s, "velum.yaml").RolloutAt)
	require.Zero(t, n.Agent("apply", "velum").Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")

	p.does(t, "freeze", "prod", "--until", "8h", "--key", p.key)
	assert.Equal(t, status.StateCurrent, story.Check(t, n).State, "a node does not see a freeze")
	p.build(t, "4.0.0-rev1-build1.3")
	_, errs, code := p.run(t, "promote", "stage", "prod", "velum", "--key", p.key)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "the channel is frozen until ")
	p.does(t, "promote", "prod@2", "--revert", "--reason", "bsc#1199876", "--key", p.key)
	s = story.Check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	require.Zero(t, n.Agent("apply", "velum").Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")

	var log []struct {
		Do, By, Run, Key, Reason string
		Version                  uint64
		Changes                  []struct{ Release struct{ Tag, Digest string } }
	}
	out := p.does(t, "log", "prod", "velum:4.0.0-rev1-build1.2", "--trust", p.pub, "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &log))
	require.Len(t, log, 5, "%s", out)
	assert.Equal(t, "withdraw", log[0].Do)
	assert.Equal(t, "bsc#1199876", log[0].Reason)
	for _, e := range log {
		assert.Equal(t, "anna", e.By)
		assert.Equal(t, "https://gitlab.example.com/caasp/images/-/jobs/7", e.Run)
		assert.Regexp(t, "^sha256:[0-9a-f]{64}$", e.Key)
	}
	assert.Contains(t, p.does(t, "log", "prod", log[4].Changes[0].Release.Digest), "anna promoted 1 release")
	assert.Contains(t, p.does(t, "verify", "--trust", p.pub), "no problems found")
}
