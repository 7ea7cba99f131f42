// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// The units of the local registry.
const (
	LocalRegistrySocket  = "image-update-agent-local-registry.socket"
	LocalRegistryService = "image-update-agent-local-registry.service"
)

// BusyMachine is a drop-in with longer timeouts for the local registry's program on a busy machine, where systemd's
// kill of a hanging process would hit a slow one.
const BusyMachine = "[Service]\nRuntimeMaxSec=60\nTimeoutStopSec=30\n"

// WithLocalRegistry returns a host that is off, with its own network, the package, the local registry's socket, and
// velum in the table.
func WithLocalRegistry(tb testing.TB, root host.Root) (*host.Host, *node.Node) {
	tb.Helper()
	n := node.Start(tb, node.Options{})
	h := host.New(tb, n, root)
	h.Install(host.PackagesOf(tb).Older)
	HostFiles(h, n)
	served := localregistry.Table{Entries: []localregistry.Entry{{
		Registry: "registry.suse.com", Repository: "caasp/velum", Tag: "4.0.0-rev1",
		Digest: "sha256:" + strings.Repeat("1", 64), MediaType: string(types.OCIManifestSchema1), Size: 512,
	}}}
	require.NoError(tb, registryhost.NewStore(n.Path("var/lib")).Save(tb.Context(), served))
	h.WriteFile("/var/lib/image-update-agent/"+table.File, n.ReadFile("var/lib/"+table.File))
	h.Enable(LocalRegistrySocket)
	h.DropIn(LocalRegistryService, BusyMachine)
	h.OwnNetwork() // on the machine, nodes without systemd use the port
	return h, n
}

// HostConfig has the settings that a test host needs, for the same reasons as package node's own settings.
const HostConfig = "interval: 0\nconfirmAfter: 0\nsettle: 1s\n" +
	"disk: {reserve: 1MiB, reservePercent: 0, highMark: 100}\n" + noUnit

// noUnit is needed where kubelet runs outside of the host, or not at all: the host's systemd does not know its flags.
const noUnit = "podManifests: /etc/kubernetes/manifests\n"

// kubeletUnit is a stub of kubelet that is active as soon as it is started. It has the name of kubelet's program: the
// agent reads the flags of no other.
const kubeletUnit = `[Service]
Type=exec
ExecStartPre=ln -sf /bin/sh /run/kubelet
ExecStart=/run/kubelet -c "exec sleep infinity" --config=/var/lib/kubelet/config.yaml
[Install]
WantedBy=multi-user.target
`

const (
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	staticPodPath = "staticPodPath: /etc/kubernetes/manifests\n"
)

// HostFiles writes the files of a host's system besides the package: settings, templates, grains, kubelet's
// configuration. It returns the port of its pod.
func HostFiles(h *host.Host, n *node.Node) (port int) {
	port = n.FreePort()
	h.WriteFile("/etc/image-update-agent/config.yaml", HostConfig)
	h.WriteFile("/usr/share/caasp-container-manifests/manifests/velum.yaml",
		VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__")))
	h.WriteFile("/etc/salt/grains", "roles:\n- admin\n")
	if n.Kubelet != nil {
		h.WriteFile(kubeletConfig, fmt.Sprintf("%sreadOnlyPort: %d\n", staticPodPath, n.Kubelet.Port))
	}
	return port
}

// StubKubelet enables a stub of kubelet, which does nothing.
func StubKubelet(h *host.Host) {
	const config = "/etc/image-update-agent/config.yaml"
	h.WriteFile(config, strings.Replace(h.ReadFile(config)+"\n", noUnit, "", 1))
	h.WriteFile(kubeletConfig, staticPodPath)
	h.WriteFile("/etc/systemd/system/kubelet.service", kubeletUnit)
	h.Enable("kubelet.service")
}
