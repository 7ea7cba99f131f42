// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// `plan` shows what would be done, and does nothing of it.
func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	n := started(t)
	n.WriteFile(templateDir+"two.yaml", podYAML("two", n.Registry.Ref("demo/velum:4.0.0-rev1")))
	before, record := look(t, n), n.ReadFile(recordFile)
	held := pins(t, n)
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
	before.unchanged(t, n)
	assert.Equal(t, held, pins(t, n))
	assert.Equal(t, record, n.ReadFile(recordFile))
}

// What programs read is JSON, alone on standard output; people see a table.
func TestCheckOutput(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	r := n.Agent("check", "--output", "json")
	assert.Equal(t, 0, r.Code, r.Stderr)
	s := parsed(t, r)
	assert.Equal(t, status.StatusSchemaVersion, s.SchemaVersion)
	velum := imageOf(t, s, "velum.yaml")
	assert.Nil(t, velum.Running, "nothing running is null")
	assert.Contains(t, r.Stdout, `"running": null`)
	assert.Equal(t, "4.0.0-rev2-build1.1", velum.Offered.Tag)
	assert.Contains(t, r.Stderr, "4.0.0-rev2-build1.1", "progress")
	r = n.Agent("check")
	assert.Equal(t, 0, r.Code, r.Stderr)
	for _, want := range []string{
		"State:", "staged since ", "What to do:  image-update-agent apply", "IMAGE ", "dashboard (velum)  nothing (follows 4.0.0-rev1)",
	} {
		assert.Contains(t, r.Stdout, want)
	}
	assert.NotContains(t, r.Stdout, "\x1b", "no colours but on a terminal")
	r = n.Agent("check", "--output", "xml")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, `--output "xml": text or json`)
	assert.Equal(t, 0, daemon.Stop().Code)
}
