// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
)

var (
	config   = digest.FromString("config")
	manifest = digest.FromString("manifest")
	index    = digest.FromString("index")
)

func container(id, uid, name string, attempt uint32, created int64) *cri.Container {
	return &cri.Container{
		Id: id, PodSandboxId: "sandbox-" + uid, CreatedAt: created,
		Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt},
		Labels: map[string]string{
			labelContainer: name, labelPodName: "velum-node1", labelNamespace: "kube-system", labelPodUID: uid,
		},
	}
}

func ids(containers []*cri.Container) []string {
	all := make([]string, 0, len(containers))
	for _, c := range containers {
		all = append(all, c.GetId())
	}
	return all
}

func TestNewest(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]struct {
		containers []*cri.Container
		want       []string
	}{
		"none":       {nil, []string{}},
		"by attempt": {[]*cri.Container{container("b", "u", "velum", 1, 5), container("a", "u", "velum", 0, 3)}, []string{"b"}},
		"the clock went back": {
			[]*cri.Container{container("a", "u", "velum", 0, 9), container("b", "u", "velum", 1, 3)}, []string{"b"},
		},
		"same attempt in a new sandbox": {
			[]*cri.Container{container("a", "u", "velum", 0, 3), container("b", "u", "velum", 0, 9)}, []string{"b"},
		},
		"init container beside": {
			[]*cri.Container{container("a", "u", "velum", 0, 3), container("i", "u", "init", 0, 1)}, []string{"i", "a"},
		},
		"changed pod, old one lingers": {
			[]*cri.Container{container("b", "new", "velum", 0, 9), container("a", "old", "velum", 4, 3)}, []string{"b", "a"},
		},
		"without metadata": {[]*cri.Container{{Id: "x"}}, []string{"x"}},
	} {
		assert.Equal(t, list.want, ids(newest(list.containers)), name)
	}
}

func TestNewestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]string{"a", "b", "c"})
		containers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *cri.Container {
			return container(rapid.StringN(1, 4, 8).Draw(t, "id"), few.Draw(t, "uid"), few.Draw(t, "name"),
				rapid.Uint32Range(0, 3).Draw(t, "attempt"), rapid.Int64Range(0, 3).Draw(t, "created"))
		}), 0, 12).Draw(t, "containers")
		kept := newest(containers)
		assert.ElementsMatch(t, ids(kept), ids(newest(kept)), "idempotent")
		shuffled := rapid.Permutation(containers).Draw(t, "shuffled")
		assert.Equal(t, ids(kept), ids(newest(shuffled)), "the order of the list does not matter")
		for _, c := range containers {
			var one *cri.Container
			for _, k := range kept {
				if identify(k) == identify(c) {
					require.Nil(t, one, "two of one")
					one = k
				}
			}
			require.NotNil(t, one, "lost one")
			assert.GreaterOrEqual(t, one.GetMetadata().GetAttempt(), c.GetMetadata().GetAttempt())
		}
	})
}

func TestStatic(t *testing.T) {
	t.Parallel()
	file, api, bare := container("f", "file", "velum", 0, 1), container("a", "api", "app", 0, 1), container("b", "bare", "x", 0, 1)
	lost := container("l", "gone", "velum", 0, 1)
	sandboxes := []*cri.PodSandbox{
		{Id: "sandbox-file", Annotations: map[string]string{annotationSource: "file"}},
		{Id: "sandbox-api", Annotations: map[string]string{annotationSource: "api"}},
		{Id: "sandbox-bare", Labels: map[string]string{annotationSource: "file"}},
	}
	all := []*cri.Container{api, file, bare, lost}
	assert.Equal(t, []string{"f"}, ids(static(sandboxes, all)))
	assert.Equal(t, []string{"a", "f", "b", "l"}, ids(all), "the argument is left alone")
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	known := repoDigests([]*cri.Image{
		{Id: config.String(), RepoDigests: []string{
			"suse.com/velum@" + manifest.String(), "mirror:5000/velum@" + manifest.String(), "suse.com/velum@" + index.String(),
			"suse.com/velum@sha256:broken", "suse.com/velum",
		}},
		{Id: "sha256:other", RepoDigests: []string{"suse.com/other@" + manifest.String()}},
	})
	c := container("id1", "uid", "velum", 3, 1)
	c.ImageRef = config.String()
	status := &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_EXITED, StartedAt: 1_000_000_007, ExitCode: 137}
	assert.Equal(t, node.Container{
		ID: "id1", Sandbox: "sandbox-uid", Pod: "velum-node1", Namespace: "kube-system", Name: "velum",
		StartedAt: time.Unix(1, 7), ExitCode: 137, Restarts: 3, Image: config, Digests: []digest.Digest{manifest, index},
	}, describe(c, status, known))

	status = &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_RUNNING}
	running := describe(c, status, nil)
	assert.True(t, running.Running)
	assert.Zero(t, running.StartedAt, "created, not started")
	assert.NotPanics(t, func() { describe(&cri.Container{}, nil, nil) })
}

func TestImageID(t *testing.T) {
	t.Parallel()
	for where, c := range map[string]*cri.Container{
		"image id":  {ImageId: config.String(), ImageRef: "suse.com/velum@" + manifest.String()},
		"image ref": {ImageRef: config.String(), Image: &cri.ImageSpec{Image: "suse.com/velum:1"}},
		"image":     {ImageRef: "suse.com/velum@" + manifest.String(), Image: &cri.ImageSpec{Image: config.String()}},
	} {
		assert.Equal(t, config, imageID(c), where)
	}
	assert.Empty(t, imageID(&cri.Container{ImageRef: "suse.com/velum:1"}))
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]int64{
		time.Nanosecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 30 * time.Second: 30,
	} {
		assert.Equal(t, want, seconds(grace), grace)
	}
}
