// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

// The units of the own host.
const (
	OwnSocket  = "image-update-agent-localhost.socket"
	OwnService = "image-update-agent-localhost.service"
)

// BusyMachine is a drop-in that gives the program of the own host time on a busy machine: systemd ends it when it
// hangs, and it does not.
const BusyMachine = "[Service]\nRuntimeMaxSec=60\nTimeoutStopSec=30\n"

// WithOwnHost is a host that is off, has a network of its own, the package, the own host's socket, and velum in the
// table.
func WithOwnHost(tb testing.TB, root host.Root) (*host.Host, *node.Node) {
	tb.Helper()
	n := node.Start(tb, node.Options{})
	h := host.New(tb, n, root)
	h.Install(host.PackagesOf(tb).Older)
	HostFiles(h, n)
	require.NoError(tb, localhost.NewStore(n.Path("var/lib")).Save(tb.Context(), ownhost.Table{Entries: []ownhost.Entry{{
		Registry: "registry.suse.com", Repository: "caasp/velum", Tag: "4.0.0-rev1",
		Digest: digest.Digest("sha256:" + strings.Repeat("1", 64)), MediaType: string(types.OCIManifestSchema1), Size: 512,
	}}}))
	h.WriteFile("/var/lib/image-update-agent/"+localhost.TableFile, n.ReadFile("var/lib/"+localhost.TableFile))
	h.Enable(OwnSocket)
	h.DropIn(OwnService, BusyMachine)
	h.OwnNetwork() // the port of the machine is that of the nodes without systemd
	return h, n
}

// HostConfig is what a host of a test needs, for the reasons of package node's own settings.
const HostConfig = "interval: 0\nconfirmAfter: 0\nsettle: 1s\n" +
	"disk: {reserve: 1MiB, reservePercent: 0, highMark: 100}\n"

// KubeletUnit is a kubelet that is up as soon as it is started.
const KubeletUnit = `[Service]
Type=exec
ExecStart=sleep infinity
[Install]
WantedBy=multi-user.target
`

// HostFiles writes what the system of a host has beside the package: settings, templates, grains, kubelet's
// configuration. It returns the port of its pod.
func HostFiles(h *host.Host, n *node.Node) (port int) {
	port = n.FreePort()
	h.WriteFile("/etc/image-update-agent/config.yaml", HostConfig)
	h.WriteFile("/usr/share/caasp-container-manifests/manifests/velum.yaml",
		VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__")))
	h.WriteFile("/etc/salt/grains", "roles:\n- admin\n")
	if n.Kubelet != nil {
		h.WriteFile("/var/lib/kubelet/config.yaml",
			fmt.Sprintf("staticPodPath: /etc/kubernetes/manifests\nreadOnlyPort: %d\n", n.Kubelet.Port))
	}
	return port
}
