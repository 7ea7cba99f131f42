// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// faults are faults of a registry with the reported errors.
var faults = []struct {
	name, said string
	kind       node.Kind
	config     bool // the fault spares the image's configuration
	status     int
	state      status.State
}{
	{"tags 500", "500 Internal Server Error", node.Manifest, false, 500, status.StateStale},
	{"tags 503", "503 Service Unavailable", node.Manifest, false, 503, status.StateStale},
	{"tags 401", "401 Unauthorized", node.Manifest, false, 401, status.StateStale},
	{"tags 403", "403 Forbidden", node.Manifest, false, 403, status.StateStale},
	{"tags 429", "429 Too Many Requests", node.Manifest, false, 429, status.StateStale},
	{"image configs 500", "500 Internal Server Error", node.Blob, false, 500, status.StateStale},
	{"layers 500", "500 Internal Server Error", node.Blob, true, 500, status.StateFailed},
	{"layers 404", "not found", node.Blob, true, 404, status.StateFailed},
	{"layers 401", "401 Unauthorized", node.Blob, true, 401, status.StateFailed},
	{"tags 404", "velum.yaml: the registry no longer has the followed tag", node.Manifest, false, 404, status.StateFailed},
}

// TestFaultyRegistry checks that a registry with a fault changes nothing on the node, that the status has its name and
// answer, and that the agent finds the update once the fault is gone.
func TestFaultyRegistry(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	before := story.Look(t, n, story.GrainFile)
	var first atomic.Value // path of the image's configuration
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			fail := node.Fail(fault.kind, fault.status)
			n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				// The agent itself asks for no other blob than the configuration, and for that one first.
				isFirst := fault.config && strings.Contains(r.URL.Path, "/blobs/") && first.CompareAndSwap(nil, r.URL.Path)
				if isFirst || r.URL.Path == first.Load() {
					return false
				}
				return fail(w, r)
			})
			s := story.Cycle(t, n, 1)
			assert.Equal(t, fault.state, s.State, s.Reason)
			assert.Contains(t, s.Reason, fault.said)
			assert.Contains(t, s.Reason, n.Registry.Host)
			before.Unchanged(t, n, story.GrainFile)
		})
	}
	n.Registry.Intercept(nil)
	s := story.Cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Zero(t, s.Sources[0].Failures)
}

// TestRegistryDown checks that a staged release stays offered while the registry is away.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	t.Run("before the update is known", func(t *testing.T) {
		before := story.Look(t, n, story.GrainFile)
		n.Registry.Down()
		s := story.Cycle(t, n, 1)
		assert.Equal(t, status.StateStale, s.State, s.Reason)
		assert.Contains(t, s.Reason, "connection refused")
		require.Len(t, s.Sources, 1)
		assert.Positive(t, s.Sources[0].Failures)
		assert.NotNil(t, s.Sources[0].LastSuccess)
		before.Unchanged(t, n, story.GrainFile)
		assert.Contains(t, n.ReadFile(story.GrainFile), "roles: [admin]\nimage_update_available: false\nimage_update_state: \"stale\"\n")
	})
	t.Run("behind it", func(t *testing.T) {
		n.Registry.Up()
		story.Cycle(t, n, 0)
		before := story.Look(t, n, story.GrainFile)
		n.Registry.Down()
		s := story.Cycle(t, n, 1)
		assert.Equal(t, status.StateStale, s.State, s.Reason)
		assert.Equal(t, "revision", story.PodOf(t, s, "velum.yaml").Change)
		before.Unchanged(t, n, story.GrainFile)
		assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\nimage_update_state: \"stale\"\n")
	})
}

// TestSlowRegistry checks that `status` answers while a registry does not, and that the daemon ends at once on request.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	before := story.Look(t, n, story.GrainFile)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	asked := story.Hang(n, node.Manifest)
	check := n.StartAgent("check")
	<-asked
	s := story.St(t, n)
	require.NotNil(t, s.Progress)
	assert.Equal(t, "asking", s.Progress.Phase)
	assert.Nil(t, s.NextCheck, "polling is off")
	stop := daemon.Stop()
	assert.Equal(t, 0, stop.Code)
	assert.Equal(t, 1, check.Wait(story.Ready).Code)
	assert.Contains(t, story.Output(t, check.Stderr), "the daemon stopped before it answered")
	before.Unchanged(t, n, story.GrainFile)
	s = story.Parsed(t, n.Agent("status", "--output", "json"))
	assert.Contains(t, []status.State{status.StateCurrent, status.StateApplying}, s.State, "who was asked to stop has found no fault")
}

// TestVanishedDigest checks that a release that vanishes between its listing and its pull is not offered, and leaves no
// data.
func TestVanishedDigest(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	rev2 := story.Rel(n, "demo/velum", "4.0.0-rev2-build1.2")
	before := story.Look(t, n, story.GrainFile)
	var asked atomic.Bool
	vanish := sync.OnceFunc(func() { n.Registry.Delete("demo/velum", rev2) }) // each layer's request waits for it
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		// The agent's first request for a blob is for the config, which describes the image.
		if !strings.Contains(r.URL.Path, "/blobs/") || asked.CompareAndSwap(false, true) {
			return false
		}
		vanish()
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	s := story.Cycle(t, n, 1)
	require.Equal(t, status.StateFailed, s.State, s.Reason)
	assert.Contains(t, s.Reason, "stage: ")
	assert.Contains(t, s.Reason, "not found")
	before.Unchanged(t, n, story.GrainFile)

	// A tag that is still in the list raises no second alarm.
	s = story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	before.Unchanged(t, n, story.GrainFile)
}

// TestUnusableTags checks that tags that do not exist, are not SUSE's, or are for another platform block only their own
// pod; other pods get their updates.
func TestUnusableTags(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	small := node.Image{Layers: []node.Layer{{Seed: 9, Size: 1000}}}
	n.Registry.Push("demo/foreign", small, "latest", "main", "sha256-1234.sig", "1.5.4-rev5-build")
	elsewhere := small
	elsewhere.Platforms = []string{"linux/s390x"}
	n.Registry.Push("demo/elsewhere", elsewhere, "1.0.0", "1.0.0-rev1", "1.0.0-rev1-build1.1")
	n.Registry.Publish("demo/next", "1.0.0-rev1-build1.1", small)
	n.Registry.Push("demo/next", elsewhere, "1.0.0-rev2", "1.0.0-rev2-build1.1")
	for name, image := range map[string]string{
		"unknown": "demo/velum:9.9.9-rev9", "norepo": "demo/nosuch:__TAG__", "foreign": "demo/foreign:__TAG__",
		"elsewhere": "demo/elsewhere:1.0.0-rev1", "next": "demo/next:1.0.0-rev1",
	} {
		n.WriteFile(story.TemplateDir+name+".yaml", story.PodYAML(name, n.Registry.Ref(image)))
	}
	s := story.Cycle(t, n, 1)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "unknown.yaml: the registry does not have this image, and the agent has never seen it there")
	assert.NotContains(t, s.Reason, "velum.yaml: ")
	for name, said := range map[string]string{
		"unknown": "404: not found", "norepo": "404: not found", "foreign": "none of its 0 tags",
		"elsewhere": "not for this platform",
	} {
		pod := story.PodOf(t, s, name+".yaml")
		require.Len(t, pod.Holds, 1, name)
		assert.Equal(t, status.HoldUnresolved, pod.Holds[0].Name)
		assert.Contains(t, pod.Holds[0].Reason, said)
		assert.NoFileExists(t, n.Path(story.ManifestDir+name+".yaml"))
	}
	assert.Equal(t, "revision", story.PodOf(t, s, "velum.yaml").Change)
	assert.Contains(t, n.ReadFile(story.ManifestDir+"next.yaml"), "demo/next:1.0.0-rev1\n")
	r := n.Agent("plan")
	assert.Contains(t, r.Stdout, "1.0.0-rev2  refused by platform: ")
	images, leases := story.Stored(t, n)
	assert.Empty(t, leases)
	for name := range images {
		assert.NotContains(t, name, "elsewhere")
		assert.NotContains(t, name, "foreign")
	}
}
