// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/e2e/node"
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

// diagnosis is what doctor says of one thing.
type diagnosis struct{ Check, Verdict, Detail, Remedy string }

func diagnose(t *testing.T, n *node.Node, code int) map[string]diagnosis {
	t.Helper()
	r := n.Agent("doctor", "--output", "json")
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	var all []diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	checks := map[string]diagnosis{}
	for _, d := range all {
		assert.Equal(t, d.Verdict == "ok", d.Remedy == "", "%+v", d)
		if was, ok := checks[d.Check]; !ok || was.Verdict == "ok" {
			checks[d.Check] = d
		}
	}
	return checks
}

// doctor finds nothing on a good node, and names what is wrong and what to do
// on a bad one.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	for check, d := range diagnose(t, n, 0) {
		if check != "disk" { // this machine's own
			assert.Equal(t, "ok", d.Verdict, "%+v", d)
		}
	}
	daemon.Stop()
	d := diagnose(t, n, 0)["daemon"]
	assert.Equal(t, "warning", d.Verdict)
	assert.Contains(t, d.Remedy, "systemctl enable --now image-update-agent")

	n.WriteFile(templateDir+"broken.yaml", "kind: [\n")
	n.WriteFile(templateDir+"gone.yaml", podYAML("gone", n.Registry.Ref("demo/nosuch:1.0.0-rev1")))
	n.WriteFile(manifestDir+"velum.yaml~", "x")
	n.WriteFile(grainFile, "a: 1\na: 2\n")
	checks := diagnose(t, n, 1)
	for check, want := range map[string]diagnosis{
		"broken.yaml":   {Verdict: "failed", Detail: "template: ", Remedy: "correct the file"},
		"gone.yaml":     {Verdict: "failed", Detail: "404: not found", Remedy: "copy it into the mirror"},
		"pod manifests": {Verdict: "warning", Detail: "velum.yaml~", Remedy: "leading dot"},
		"grains":        {Verdict: "failed", Detail: "line 2: duplicate key", Remedy: "repair the file"},
	} {
		assert.Equal(t, want.Verdict, checks[check].Verdict, check)
		assert.Contains(t, checks[check].Detail, want.Detail)
		assert.Contains(t, checks[check].Remedy, want.Remedy)
	}
	n.Registry.Down()
	d = diagnose(t, n, 1)["velum.yaml"]
	assert.Contains(t, d.Detail, "connection refused")
	assert.Contains(t, d.Remedy, "hosts.toml of "+n.Registry.Host)
	n.Containerd.Stop()
	d = diagnose(t, n, 1)["containerd"]
	assert.Equal(t, "failed", d.Verdict)
	assert.Contains(t, d.Remedy, "systemctl start containerd")
	require.NoError(t, os.RemoveAll(n.Path(manifestDir)))
	d = diagnose(t, n, 1)["pod manifests"]
	assert.Contains(t, d.Remedy, "staticPodPath")
}

// What programs read is JSON, alone on standard output; people see a table.
func TestCheckOutput(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	r := n.Agent("check", "--output", "json")
	assert.Equal(t, 0, r.Code, r.Stderr)
	s := parsed(t, r)
	assert.Equal(t, agent.StatusSchemaVersion, s.SchemaVersion)
	velum := imageOf(t, s, "velum.yaml")
	assert.Nil(t, velum.Running, "nothing running is null")
	assert.Contains(t, r.Stdout, `"running": null`)
	assert.Equal(t, "4.0.0-rev2-build1.1", velum.Offered.Tag)
	assert.Contains(t, r.Stderr, "4.0.0-rev2-build1.1", "progress")
	r = n.Agent("check")
	assert.Equal(t, 0, r.Code, r.Stderr)
	for _, want := range []string{
		"State:", "staged since ", "POD MANIFEST", "velum.yaml    dashboard", "To bring it into use: image-update-agent apply",
	} {
		assert.Contains(t, r.Stdout, want)
	}
	assert.NotContains(t, r.Stdout, "\x1b", "no colours but on a terminal")
	r = n.Agent("check", "--output", "xml")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, `--output "xml": text or json`)
	assert.Equal(t, 0, daemon.Stop().Code)
}
