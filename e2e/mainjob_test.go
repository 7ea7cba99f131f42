// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

const (
	velumYAML = "etc/kubernetes/manifests/velum.yaml"
	waiting   = "var/lib/image-update-agent/rendered/velum.yaml"
	grainFile = "etc/salt/grains"
)

// The main job: a template becomes a pod, a rebuild and a revision are found,
// staged, offered and, on approval, applied; nothing restarts without it.
func TestMainJob(t *testing.T) {
	t.Parallel()
	for _, version := range []node.Version{node.Containerd16, node.Containerd2} {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			port := n.FreePort()
			template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
			n.WriteFile(grainFile, "roles:\n- admin\n")
			layers := []node.Layer{{Seed: 1, Size: 4 << 20}}
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Layers: layers})

			// A new pod restarts nothing: it is written at once, by its intermediate tag.
			s := once(t, n)
			isCurrent(t, s)
			first := n.ReadFile(velumYAML)
			assert.Contains(t, first, "image: "+n.Registry.Ref("demo/velum:4.0.0-rev1")+" # the dashboard\n    imagePullPolicy: Always\n")
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			assert.Contains(t, n.ReadFile(grainFile), "roles:\n- admin\nimage_update_available: false\n")

			daemon := n.StartAgent("run")
			rebuild(t, n, port, first)
			revision(t, n, port)
			numbers := scrape(t, n)
			for _, series := range []string{`applies_total{result="applied"}`, "apply_duration_seconds_count", `pod_restart_seconds_count{of="apply"}`} {
				assert.InDelta(t, 2, number(numbers, series), 0, series)
			}
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// rebuild: the same intermediate tag gets a new digest.
func rebuild(t *testing.T, n *node.Node, port int, manifest string) {
	t.Helper()
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Layers: []node.Layer{{Seed: 2, Size: 4 << 20}}})
	s := check(t, n)
	require.Len(t, s.Images, 1)
	velum := s.Images[0]
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "rebuild", velum.Change)
	assert.True(t, velum.Staged)
	assert.Equal(t, "4.0.0-rev1-build1.1", velum.Running.Tag)
	assert.Equal(t, "4.0.0-rev1-build1.2", velum.Offered.Tag)
	assert.Equal(t, manifest, n.ReadFile(velumYAML), "a rebuild leaves the pod manifest alone")
	assert.Contains(t, n.ReadFile(grainFile), "image_update_available: true\n")
	answers(t, port, "4.0.0-rev1-build1.1")

	n.Registry.Forget()
	apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	requests := n.Registry.Requests()
	assert.Zero(t, requests.Bytes(node.Blob), "what was staged is not fetched again")
	assert.Equal(t, 1, requests.Of(criAgent).Count("HEAD", node.Manifest), "by kubelet: %+v", requests)
	assert.Positive(t, requests.Of(ownAgent).Count("HEAD", node.Manifest), "before the stop; and when kubelet takes a second: %+v", requests)

	s = st(t, n)
	isCurrent(t, s)
	assert.Equal(t, "4.0.0-rev1-build1.2", s.Images[0].Running.Tag)
	assert.False(t, s.Images[0].Adopted)
	assert.Contains(t, n.ReadFile(grainFile), "image_update_available: false\n")
	apply(t, n, 3) // nothing to do
}

// revision: a higher intermediate tag appears.
func revision(t *testing.T, n *node.Node, port int) {
	t.Helper()
	before := n.ReadFile(velumYAML)
	n.Registry.Publish("demo/velum", "4.0.0-rev2-build2.1", node.Image{Layers: []node.Layer{{Seed: 3, Size: 4 << 20}}})
	s := check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "revision", s.Images[0].Change)
	assert.True(t, s.PodManifests[0].Waiting)
	assert.Equal(t, before, n.ReadFile(velumYAML), "it waits for approval")
	assert.Contains(t, n.ReadFile(waiting), "velum:4.0.0-rev2")
	answers(t, port, "4.0.0-rev1-build1.2")

	apply(t, n, 0, "velum.yaml")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	assert.Contains(t, n.ReadFile(velumYAML), "velum:4.0.0-rev2")
	assert.NoFileExists(t, n.Path(waiting))
	s = st(t, n)
	isCurrent(t, s)
	assert.Contains(t, n.ReadFile(grainFile), "image_update_count: 0\n")
}

// template installs velum's template for a server at the port.
func template(n *node.Node, port int, image string) {
	n.WriteFile("usr/share/caasp-container-manifests/manifests/velum.yaml", velumTemplate(port, image))
}

func velumTemplate(port int, image string) string {
	return `# The dashboard.
apiVersion: v1
kind: Pod
metadata:
  name: velum
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 5
  containers:
  - name: dashboard
    image: ` + image + ` # the dashboard
    args: ["` + address(port) + `"]
`
}

// once runs a single cycle and returns its status.
func once(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	return parsed(t, n.Agent("run", "--once", "--output", "json"))
}

func check(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	var r node.Result
	node.Eventually(t, "daemon answers", ready, func() error {
		if _, err := os.Stat(n.Path("run/image-update-agent/agent.sock")); err != nil {
			return err
		}
		r = n.Agent("check", "--output", "json")
		return nil
	})
	return parsed(t, r)
}

func st(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	return parsed(t, n.Agent("status", "--output", "json"))
}

func parsed(t *testing.T, r node.Result) status.Status {
	t.Helper()
	var s status.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &s), "exit %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	return s
}

func apply(t *testing.T, n *node.Node, code int, images ...string) {
	t.Helper()
	r := n.Agent(append([]string{"apply"}, images...)...)
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
}

// answers asserts what a pod answers. On a busy machine its program listens later than its container runs.
func answers(t *testing.T, port int, want string) {
	t.Helper()
	var got string
	node.Eventually(t, "answer", ready, func() (err error) {
		got, err = node.Answer(port)
		return err
	})
	assert.Equal(t, want, got)
}
