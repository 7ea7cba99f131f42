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

// onBoth tells a story on the oldest systemd that the package is made for, and on one that knows all keys of its units.
func onBoth(t *testing.T, body func(t *testing.T, root host.Root)) {
	t.Helper()
	for _, root := range []host.Root{host.Systemd252, host.Systemd257} {
		t.Run(string(root), func(t *testing.T) {
			t.Parallel()
			body(t, root)
		})
	}
}

// installed is a host that is off and has the package and hostFiles, beside a node whose registry has the first release
// of its pod. port is the pod's.
func installed(t *testing.T, root host.Root, options node.Options) (h *host.Host, n *node.Node, port int) {
	t.Helper()
	n = node.Start(t, options)
	h = host.New(t, n, root)
	h.Install(host.PackagesOf(t).Older)
	port = story.HostFiles(h, n)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
	return h, n, port
}

// hostKubelet gives a host a kubelet of its own, which does nothing.
func hostKubelet(h *host.Host) {
	h.WriteFile("/etc/systemd/system/kubelet.service", story.KubeletUnit)
	h.Enable("kubelet.service")
}

// hostSays is the status as `check` or `status` prints it in a host.
func hostSays(t *testing.T, h *host.Host, verb string) status.Status {
	t.Helper()
	r := h.Exec("image-update-agent", verb, "--output", "json")
	var s status.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &s), "exit %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	return s
}
