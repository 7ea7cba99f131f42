// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestWhatAContainerRuns(t *testing.T) {
	t.Parallel()
	d := func(s string) digest.Digest { return digest.FromString(s) }
	target := release.Release{Digest: d("target"), Build: release.Build{Config: d("config")}}
	held := []node.HeldImage{{Digest: d("held"), Config: d("c")}, {Digest: d("other"), Config: d("o")}}
	for name, c := range map[string]struct {
		container *node.Container
		want      digest.Digest
		same      bool
	}{
		"nothing":                          {nil, "", false},
		"an image that CRI does not name":  {&node.Container{}, "", false},
		"one of its digests is the target": {&node.Container{Image: d("c"), Digests: []digest.Digest{d("held"), d("target")}}, d("target"), true},
		"the config is the target's":       {&node.Container{Image: d("config")}, d("target"), true},
		"the same, under a held digest":    {&node.Container{Image: d("config"), Digests: []digest.Digest{d("gone"), d("held")}}, d("held"), true},
		"another, that is held":            {&node.Container{Image: d("c"), Digests: []digest.Digest{d("gone"), d("held")}}, d("held"), false},
		"another, that only the store has": {&node.Container{Image: d("o")}, d("other"), false},
		"another, that nobody holds":       {&node.Container{Image: d("x"), Digests: []digest.Digest{d("gone")}}, d("gone"), false},
		"another, that nobody knows":       {&node.Container{Image: d("x")}, "", false},
	} {
		got, same := node.RunsTarget(c.container, target, held)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.same, same, name)
	}
}

func TestOwnerOfACRIPod(t *testing.T) {
	t.Parallel()
	names := []string{"velum", "velum-db", "velum-node1"}
	for pod, want := range map[string]string{
		"velum-node1": "velum", "velum-db-node1": "velum-db", "velum-node1-node1": "velum-node1",
		"velum": "", "velumx-node1": "", "other-node1": "",
	} {
		assert.Equal(t, want, node.Inventory{}.Owner(pod, names), pod)
	}
}

func TestContainerThatCounts(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	inv := node.Inventory{Containers: []node.Container{
		{ID: "dead", Sandbox: "old", Pod: "velum-n", Namespace: "default", Name: "velum", StartedAt: at(9)},
		{ID: "dead init", Sandbox: "old", Pod: "velum-n", Namespace: "default", Name: "init", StartedAt: at(9)},
		{ID: "init", Sandbox: "new", Pod: "velum-n", Namespace: "default", Name: "init", StartedAt: at(1)},
		{ID: "runs", Sandbox: "new", Pod: "velum-n", Namespace: "default", Name: "velum", StartedAt: at(2), Running: true},
		{ID: "foreign", Sandbox: "x", Pod: "velum-n", Namespace: "kube-system", Name: "velum", Running: true},
	}}
	all := inv.PodContainers("default", "velum", []string{"velum"})
	require.Len(t, all, 2, "the clock was set back, the sandbox tells")
	assert.Equal(t, "runs", node.FindContainer(all, "velum").ID)
	assert.Equal(t, "init", node.FindContainer(all, "init").ID)
	assert.Nil(t, node.FindContainer(all, "nobody"))
	assert.Equal(t, "late", node.FindContainer([]node.Container{{ID: "early", StartedAt: at(1)}, {ID: "late", StartedAt: at(2)}}, "").ID)
}

func TestWordsForPeople(t *testing.T) {
	t.Parallel()
	r := release.Release{Repository: "r.io/a", Tag: "1.0.0-rev1", Long: "1.0.0-rev1-build1.1", Digest: "sha256:d"}
	for want, step := range map[string]Step{
		"stage r.io/a:1.0.0-rev1-build1.1 (sha256:d)": {Do: StepStage, Release: r},
		"pin 1 images":           {Do: StepPin, Pins: make([]release.Pin, 1)},
		"apply a.yaml (rebuild)": {Do: StepApply, File: "a.yaml", Apply: Apply{Change: "rebuild"}},
		"write a.yaml":           {Do: StepWrite, File: "a.yaml"},
	} {
		assert.Equal(t, want, step.String())
	}
}
