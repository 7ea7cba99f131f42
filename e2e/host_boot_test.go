// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// kubeletThatLooks keeps what lies in kubelet's directory when it starts.
const kubeletThatLooks = `[Unit]
Description=kubelet, as far as the boot knows it
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cp -r /etc/kubernetes/manifests /run/seen
[Install]
WantedBy=multi-user.target
`

// Packages have brought templates while the node was off: kubelet finds their pod manifests when it starts.
func TestHostRendersBeforeKubelet(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	h := host.New(t, n, host.Systemd252)
	h.Install(host.PackagesOf(t).Older)
	h.WriteFile("/usr/lib/systemd/system/kubelet.service", kubeletThatLooks)
	h.Enable("kubelet.service")
	template := func(tag string) {
		h.WriteFile("/"+templateDir+"velum.yaml", velumTemplate(1, "registry.suse.com/caasp/v4/velum:"+tag))
	}
	template("4.0.0-rev1")
	assert.Equal(t, "running", h.Boot())
	assert.Contains(t, h.ReadFile("/run/seen/velum.yaml"), "velum:4.0.0-rev1")
	render := strings.Replace(host.Service, ".service", "-render.service", 1)
	assert.Equal(t, "success", h.Show(render, "Result")["Result"])
	h.PowerOff()

	template("4.0.1-rev1")
	assert.Equal(t, "running", h.Boot())
	assert.Contains(t, h.ReadFile("/run/seen/velum.yaml"), "velum:4.0.1-rev1", h.Journal(render))
	assert.Contains(t, h.Journal(render), "velum.yaml written: its template is another")

	// Once the node is up nothing is changed by it.
	template("4.0.2-rev1")
	h.Must("systemctl", "restart", render)
	assert.Contains(t, h.ReadFile("/etc/kubernetes/manifests/velum.yaml"), "velum:4.0.1-rev1")
	assert.Contains(t, h.Journal(render), "kubelet.service: has been started since the boot")
}
