// SPDX-License-Identifier: Apache-2.0

package story

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// PodYAML returns a small pod manifest.
func PodYAML(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: kube-system\nspec:\n" +
		"  containers:\n  - name: " + name + "\n    image: " + image + "\n"
}

// PodOf returns the status of a pod manifest.
func PodOf(t *testing.T, s status.Status, file string) status.PodStatus {
	t.Helper()
	for _, p := range s.PodManifests {
		if p.PodManifest == file {
			return p
		}
	}
	require.FailNow(t, "not in the status", "%s: %+v", file, s.PodManifests)
	return status.PodStatus{}
}

// Template installs velum's template for a server on the port.
func Template(n *node.Node, port int, image string) {
	n.WriteFile("usr/share/caasp-container-manifests/manifests/velum.yaml", VelumTemplate(port, image))
}

// VelumTemplate returns velum's template, whose container answers on the port.
func VelumTemplate(port int, image string) string {
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
    args: ["` + Address(port) + `"]
`
}
