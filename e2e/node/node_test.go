// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// TestNodeRunsAStaticPod checks that the test node is a real one: kubelet runs a static pod from the registry, and
// pulls the current digest of a floating tag when its container is stopped through CRI.
func TestNodeRunsAStaticPod(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := startChecked(t, node.Options{Containerd: version, Kubelet: true})
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{{Seed: 1, Size: 1 << 20}}})
			port := n.FreePort()
			n.WritePod(node.Pod{Name: "velum", Image: n.Registry.Ref("demo/velum:4.0.0-rev1"), Port: port})
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")

			n.Registry.Forget()
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Layers: []node.Layer{{Seed: 1, Size: 1 << 20}}})
			answer, err := node.Answer(port)
			require.NoError(t, err)
			assert.Equal(t, "4.0.0-rev1-build1.1", answer, "kubelet does not look at the registry by itself")
			assert.Empty(t, n.Registry.Requests())

			cri := n.CRI()
			cri.Stop("velum")
			n.WaitAnswer(port, "4.0.0-rev1-build1.2")
			requests := n.Registry.Requests()
			assert.Equal(t, 1, requests.Count("HEAD", node.Manifest), "%+v", requests)
			assert.Less(t, requests.Bytes(node.Blob), int64(10_000), "only the configuration is new")

			pods, err := n.Kubelet.Pods()
			require.NoError(t, err)
			assert.Contains(t, string(pods), "velum")
			assert.Contains(t, cri.Tags(), n.Registry.Ref("demo/velum:4.0.0-rev1"))

			n.Containerd.Kill()
			answer, err = node.Answer(port)
			require.NoError(t, err, "containers survive their containerd")
			assert.Equal(t, "4.0.0-rev1-build1.2", answer)
			n.Containerd.Start()
			_, err = cri.Running("velum")
			require.NoError(t, err)
		})
	}
}

// startChecked starts a node and, after its end, asserts that nothing is left of it.
func startChecked(t *testing.T, options node.Options) *node.Node {
	t.Helper()
	var n *node.Node
	t.Cleanup(func() {
		if n != nil {
			// udev looks at a loop device when it changes, and keeps it until it has.
			assert.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, left(t, n.Dir)) }, node.Patience, time.Second)
		}
	})
	began := time.Now()
	n = node.Start(t, options)
	t.Logf("node started in %s", time.Since(began).Round(time.Millisecond))
	return n
}

// left lists processes, mounts and loop devices that name a node's directory, its cgroups, and the directory itself.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	mounts, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	require.NoError(t, err)
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, file := range slices.Concat(files, mounts, loops) {
		text, _ := os.ReadFile(file) // the process may have ended
		if strings.Contains(string(text), dir) {
			found = append(found, file)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
	require.NoError(t, err)
	found = append(found, groups...)
	if _, err := os.Stat(dir); err == nil {
		found = append(found, dir)
	}
	return found
}
