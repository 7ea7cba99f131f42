// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// The main job: a template becomes a pod; a rebuild and a revision are found, staged, offered and, after approval,
// applied; nothing restarts without it. It is the one story on containerd 1.7, too.
func TestMainJob(t *testing.T) {
	t.Parallel()
	for _, version := range slices.Compact(append([]node.Version{node.Containerd17}, node.Containerds()...)) {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			port := n.FreePort()
			story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
			n.WriteFile(story.GrainFile, "roles:\n- admin\n")
			layers := []node.Layer{{Seed: 1, Size: 4 << 20}}
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Layers: layers})

			// A new pod restarts nothing: it is written at once, with its intermediate tag.
			s := once(t, n)
			story.IsCurrent(t, s)
			first := n.ReadFile(story.VelumYAML)
			assert.Contains(t, first, "image: "+n.Registry.Ref("demo/velum:4.0.0-rev1")+" # the dashboard\n    imagePullPolicy: Always\n")
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			assert.Contains(t, n.ReadFile(story.GrainFile), "roles:\n- admin\nimage_update_available: false\n")

			daemon := n.StartAgent("run")
			rebuild(t, n, port, first)
			revision(t, n, port)
			numbers := story.Scrape(t, n)
			for _, series := range []string{`applies_total{result="applied"}`, "apply_duration_seconds_count", `pod_restart_seconds_count{of="apply"}`} {
				assert.InDelta(t, 2, story.Number(numbers, series), 0, series)
			}
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// rebuild: the same intermediate tag gets a new digest.
func rebuild(t *testing.T, n *node.Node, port int, manifest string) {
	t.Helper()
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Layers: []node.Layer{{Seed: 2, Size: 4 << 20}}})
	s := story.Check(t, n)
	require.Len(t, s.Images, 1)
	velum := s.Images[0]
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "rebuild", velum.Change)
	assert.True(t, velum.Staged)
	assert.Equal(t, "4.0.0-rev1-build1.1", velum.Running.Tag)
	assert.Equal(t, "4.0.0-rev1-build1.2", velum.Offered.Tag)
	assert.Equal(t, manifest, n.ReadFile(story.VelumYAML), "a rebuild leaves the pod manifest alone")
	assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\n")
	story.Answers(t, port, "4.0.0-rev1-build1.1")

	n.Registry.Forget()
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	requests := n.Registry.Requests()
	assert.Zero(t, requests.Bytes(node.Blob), "what was staged is not fetched again")
	assert.Equal(t, manifest, story.Followed(t, n, "velum.yaml"))
	if n.ReadFile(story.VelumYAML) == manifest {
		assert.Equal(t, 1, requests.Of(story.CriAgent).Count("HEAD", node.Manifest), "by kubelet: %+v", requests)
	}
	assert.Positive(t, requests.Of(story.OwnAgent).Count("HEAD", node.Manifest), "before the stop; and when kubelet takes a second: %+v", requests)

	s = story.St(t, n)
	story.IsCurrent(t, s)
	assert.Equal(t, "4.0.0-rev1-build1.2", s.Images[0].Running.Tag)
	assert.False(t, s.Images[0].PickedUp)
	assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: false\n")
	story.Apply(t, n, 3) // nothing to do
}

// revision: a higher intermediate tag is published.
func revision(t *testing.T, n *node.Node, port int) {
	t.Helper()
	before := n.ReadFile(story.VelumYAML)
	n.Registry.Publish("demo/velum", "4.0.0-rev2-build2.1", node.Image{Layers: []node.Layer{{Seed: 3, Size: 4 << 20}}})
	s := story.Check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "revision", s.Images[0].Change)
	assert.True(t, s.PodManifests[0].Waiting)
	assert.Equal(t, before, n.ReadFile(story.VelumYAML), "it waits for approval")
	assert.Contains(t, n.ReadFile(story.Waiting), "velum:4.0.0-rev2")
	story.Answers(t, port, "4.0.0-rev1-build1.2")

	story.Apply(t, n, 0, "velum.yaml")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	assert.Contains(t, n.ReadFile(story.VelumYAML), "velum:4.0.0-rev2")
	assert.NoFileExists(t, n.Path(story.Waiting))
	s = story.St(t, n)
	story.IsCurrent(t, s)
	assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_count: 0\n")
}

// once runs a single cycle and returns its status.
func once(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	return story.Parsed(t, n.Agent("run", "--once", "--output", "json"))
}
