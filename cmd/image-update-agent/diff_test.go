// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

func TestDiffShowsWhatAnApplyChanges(t *testing.T) {
	t.Parallel()
	disk, rendered := t.TempDir(), t.TempDir()
	const before = "image: r/velum:1.0.0-rev1\nimagePullPolicy: IfNotPresent\n"
	put(t, disk, map[string]string{"velum.yaml": before, "etcd.yaml": before})
	put(t, rendered, map[string]string{
		"velum.yaml": "image: r/velum:1.0.0-rev2\nimagePullPolicy: Always\n", "new.yaml": "image: r/new:1.0.0-rev1\n",
	})
	status := status.Status{
		Images: []status.ImageStatus{{Image: "r/velum", PodManifest: "velum.yaml"}, {Image: "r/new", PodManifest: "new.yaml"}},
		PodManifests: []status.PodStatus{
			{PodManifest: "etcd.yaml"},
			{PodManifest: "new.yaml", Waiting: true},
			{PodManifest: "velum.yaml", Waiting: true},
			{PodManifest: "unstaged.yaml", Waiting: true},
		},
	}
	shown := func(names ...string) string {
		a := newApp(streams{out: io.Discard, err: io.Discard})
		s := settings{Settings: config.Settings{PodManifests: disk, Rendered: rendered}}
		diffs, err := a.waitingDiffs(s, status, names)
		require.NoError(t, err)
		return strings.Join(slices.Collect(maps.Values(diffs)), "")
	}
	velum := shown("velum")
	for _, line := range []string{
		"-image: r/velum:1.0.0-rev1\n", "+image: r/velum:1.0.0-rev2\n",
		"-imagePullPolicy: IfNotPresent\n", "+imagePullPolicy: Always\n",
	} {
		assert.Contains(t, velum, line)
	}
	assert.NotContains(t, velum, "r/new")
	assert.Contains(t, shown(), "+image: r/new:1.0.0-rev1\n", "a new file is all new")
	assert.NotContains(t, shown(), "etcd")
}

const (
	runningImage = "image: r/velum:1.0.0-rev1\n"
	offeredImage = "image: r/velum:1.0.0-rev2\n"
)

// writer is a daemon whose apply writes velum.yaml.
type writer struct {
	hostileDaemon
	disk string
}

func (w writer) Status() status.Status {
	return status.Status{SchemaVersion: status.StatusSchemaVersion, PodManifests: []status.PodStatus{
		{PodManifest: "etcd.yaml"}, {PodManifest: "velum.yaml", Waiting: true},
	}}
}

func (w writer) Apply(context.Context, agent.ApplyRequest, func(status.Progress)) ([]status.Outcome, error) {
	err := os.WriteFile(w.disk, []byte(offeredImage), 0o600)
	return []status.Outcome{
		{PodManifest: "etcd.yaml", Result: status.ResultNothing},
		{PodManifest: "velum.yaml", Change: "revision", Result: status.ResultApplied},
	}, err
}

func (w writer) Rollback(context.Context, plan.Which, func(status.Progress)) ([]status.Outcome, error) {
	return []status.Outcome{{PodManifest: "velum.yaml", Result: status.ResultRolledBack}}, nil
}

// waitingNode is a node with a daemon on which velum.yaml waits for an approval.
func waitingNode(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	put(t, s.PodManifests, map[string]string{"velum.yaml": runningImage})
	put(t, s.Rendered, map[string]string{"velum.yaml": offeredImage})
	listening(t, root, writer{disk: filepath.Join(s.PodManifests, "velum.yaml")}, "agent.sock", "status.sock")
	return root
}

// The difference is that of before the apply, and standard output one value.
func TestApplyHasItsDifferenceInTheJSON(t *testing.T) {
	t.Parallel()
	apply := func(args ...string) string {
		var out []struct {
			Result string
			Diff   *string
		}
		text := does(t, append([]string{"apply", "--root", waitingNode(t)}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(text), &out), text)
		require.Len(t, out, 2)
		require.NotNil(t, out[0].Diff)
		assert.Empty(t, *out[0].Diff, "etcd.yaml unchanged")
		assert.Equal(t, "applied", out[1].Result)
		return *out[1].Diff
	}
	diff := apply("--diff", "--output", "json")
	assert.Contains(t, diff, "-"+runningImage+"+"+offeredImage)
	assert.Empty(t, apply("--output", "json"))
}

func TestApplyShowsItsDifferenceFirst(t *testing.T) {
	t.Parallel()
	text := does(t, "apply", "--root", waitingNode(t), "--diff")
	diff, outcome, found := strings.Cut(text, "+"+offeredImage)
	assert.True(t, found, text)
	assert.Contains(t, diff, "-"+runningImage)
	assert.Contains(t, outcome, "velum.yaml  revision  applied")
	assert.NotContains(t, does(t, "apply", "--root", waitingNode(t)), offeredImage)
}

func TestRollbackHasNoDifference(t *testing.T) {
	t.Parallel()
	assert.Contains(t, does(t, "rollback", "velum", "--root", waitingNode(t), "--output", "json"), `"diff": ""`)
}

func TestPlanHasItsDifferences(t *testing.T) {
	t.Parallel()
	root := waitingNode(t)
	plan := plan.Plan{Pods: []plan.PodPlan{{File: "etcd.yaml"}, {File: "velum.yaml", Wanted: []byte(offeredImage)}}}
	shown := func(output string) string {
		var out bytes.Buffer
		a := newApp(streams{out: &out, err: &out})
		a.root, a.output = root, output
		s, err := a.settings()
		require.NoError(t, err)
		v := statuspage.ViewOf(plan)
		require.NoError(t, a.addDiffs(s, plan, v))
		require.NoError(t, a.printPlan(v))
		return out.String()
	}
	const diff = "-" + runningImage + "+" + offeredImage
	var v statuspage.PlanView
	require.NoError(t, json.Unmarshal([]byte(shown("json")), &v))
	assert.Empty(t, v.Pods[0].Diff)
	assert.Contains(t, v.Pods[1].Diff, diff)
	assert.Contains(t, shown("text"), diff)
}

// plan and doctor change nothing, not even a record that they cannot read: it may be that of a newer daemon.
func TestVerbsThatShowLeaveTheRecord(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"plan"}, {"plan", "--offline"}, {"doctor"}, {"status"}, {"history"}} {
		t.Run(strings.Join(verb, " "), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/kubernetes/manifests"), 0o755))
			dir := filepath.Join(root, "var/lib/image-update-agent")
			put(t, dir, map[string]string{"record.json": `{"version": 999}`})
			_, o, e := ends(t, append(verb, "--root", root)...)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 1, "%s%s", o, e)
			assert.Equal(t, "record.json", files[0].Name())
		})
	}
}
