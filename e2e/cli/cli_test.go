// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// `plan` shows the next steps and runs none of them.
func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.TemplateDir+"two.yaml", story.PodYAML("two", n.Registry.Ref("demo/velum:4.0.0-rev1")))
	before, record := story.Look(t, n), n.ReadFile(story.RecordFile)
	held := story.Pins(t, n)
	r := n.Agent("plan")
	assert.Equal(t, 0, r.Code, r.Stderr)
	for _, want := range []string{
		"revision: 4.0.0-rev1 -> 4.0.0-rev2-build1.1", "Steps:", "1. stage " + n.Registry.Ref("demo/velum:4.0.0-rev2-build1.1"),
		"write two.yaml", "keep velum.yaml",
	} {
		assert.Contains(t, r.Stdout, want)
	}
	n.Registry.Forget()
	r = n.Agent("plan", "--offline")
	assert.Equal(t, 0, r.Code, r.Stderr)
	assert.Empty(t, n.Registry.Requests())
	before.Unchanged(t, n)
	assert.Equal(t, held, story.Pins(t, n))
	assert.Equal(t, record, n.ReadFile(story.RecordFile))
}

// The output for programs is JSON, alone on standard output; people see a table.
func TestCheckOutput(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	r := n.Agent("check", "--output", "json")
	assert.Equal(t, 0, r.Code, r.Stderr)
	s := story.Parsed(t, r)
	assert.Equal(t, status.StatusSchemaVersion, s.SchemaVersion)
	velum := story.ImageOf(t, s, "velum.yaml")
	assert.Nil(t, velum.Running, "nothing running is null")
	assert.Contains(t, r.Stdout, `"running": null`)
	assert.Equal(t, "4.0.0-rev2-build1.1", velum.Offered.Tag)
	assert.Contains(t, r.Stderr, "4.0.0-rev2-build1.1", "progress")
	r = n.Agent("check")
	assert.Equal(t, 0, r.Code, r.Stderr)
	for _, want := range []string{
		"State:", "staged since ", "What to do:  run image-update-agent apply", "IMAGE ", "dashboard (velum)  nothing (follows 4.0.0-rev1)",
	} {
		assert.Contains(t, r.Stdout, want)
	}
	assert.NotContains(t, r.Stdout, "\x1b", "no colours but on a terminal")
	r = n.Agent("check", "--output", "xml")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, `--output "xml": want text or json`)
	assert.Equal(t, 0, daemon.Stop().Code)
}
