// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// hostConfig is what a host of a test needs, for the reasons of package node's own settings.
const hostConfig = "interval: 0\nconfirmAfter: 0\nsettle: 1s\n" +
	"disk: {reserve: 1MiB, reservePercent: 0, highMark: 100}\n"

// kubeletUnit is a kubelet that is up as soon as it is started.
const kubeletUnit = `[Service]
Type=exec
ExecStart=sleep infinity
[Install]
WantedBy=multi-user.target
`

// onBoth tells a story on the oldest systemd that the package is made for, and on one that knows all keys of its units.
func onBoth(t *testing.T, story func(t *testing.T, root host.Root)) {
	t.Helper()
	for _, root := range []host.Root{host.Systemd252, host.Systemd257} {
		t.Run(string(root), func(t *testing.T) {
			t.Parallel()
			story(t, root)
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
	port = hostFiles(h, n)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
	return h, n, port
}

// hostFiles writes what the system of a host has beside the package: settings, templates, grains, kubelet's
// configuration. It returns the port of its pod.
func hostFiles(h *host.Host, n *node.Node) (port int) {
	port = n.FreePort()
	h.WriteFile("/etc/image-update-agent/config.yaml", hostConfig)
	h.WriteFile("/usr/share/caasp-container-manifests/manifests/velum.yaml",
		velumTemplate(port, n.Registry.Ref("demo/velum:__TAG__")))
	h.WriteFile("/etc/salt/grains", "roles:\n- admin\n")
	if n.Kubelet != nil {
		h.WriteFile("/var/lib/kubelet/config.yaml", fmt.Sprintf("staticPodPath: /etc/kubernetes/manifests\nreadOnlyPort: %d\n", n.Kubelet.Port))
	}
	return port
}

// hostKubelet gives a host a kubelet of its own, which does nothing.
func hostKubelet(h *host.Host) {
	h.WriteFile("/etc/systemd/system/kubelet.service", kubeletUnit)
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
