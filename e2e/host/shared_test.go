// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// onBoth runs a test on the oldest systemd that the package supports, and on one that knows all keys of its units.
func onBoth(t *testing.T, body func(t *testing.T, root host.Root)) {
	t.Helper()
	for _, root := range host.Roots() {
		t.Run(string(root), func(t *testing.T) {
			t.Parallel()
			body(t, root)
		})
	}
}

// installed returns a host that is off, with the package and hostFiles, and its node, whose registry has the first
// release of the pod. port is the pod's.
func installed(t *testing.T, root host.Root, options node.Options) (h *host.Host, n *node.Node, port int) {
	t.Helper()
	n = node.Start(t, options)
	h = host.New(t, n, root)
	h.Install(host.PackagesOf(t).Older)
	port = story.HostFiles(h, n)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
	return h, n, port
}

// hostSays returns the status that `check` or `status` prints in a host.
func hostSays(t *testing.T, h *host.Host, verb string) status.Status {
	t.Helper()
	r := h.Exec("image-update-agent", verb, "--output", "json")
	var s status.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &s), "exit %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	return s
}
