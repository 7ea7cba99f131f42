// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// What is there of distributions, and what doctor says of it: which was chosen, and what to do.
func TestDoctorSaysWhichDistributionItFound(t *testing.T) {
	t.Parallel()
	const (
		program = "usr/local/bin/rke2"
		unit    = "usr/local/lib/systemd/system/rke2-server.service"
		data    = "var/lib/rancher/rke2/server/token"
		kubelet = "usr/bin/kubelet"
		set     = "var/lib/kubelet/config.yaml"
	)
	for name, c := range map[string]struct {
		paths  []string
		named  string
		first  string
		texts  []string
		second string // empty: no second finding
		more   []string
	}{
		"kubeadm":        {[]string{kubelet, set}, "", OK, []string{"kubeadm, kubeletUnit kubelet.service"}, "", nil},
		"nothing":        {nil, "", OK, []string{"kubeadm"}, "", nil},
		"RKE2":           {[]string{program, unit, data}, "", OK, []string{"rke2 v1.33.5-rke2r1, kubeletUnit rke2-server.service", "registries /etc/rancher/rke2/registries.yaml"}, "", nil},
		"never started":  {[]string{program, unit}, "", Warn, []string{"never started", "systemctl enable --now rke2-server"}, "", nil},
		"removed":        {[]string{data, kubelet, set}, "", OK, []string{"kubeadm"}, Advice, []string{"/var/lib/rancher/rke2 exists, but rke2 is not installed: kubeadm was chosen", "platform: rke2"}},
		"its data alone": {[]string{data}, "", Warn, []string{"its program was not found, only /var/lib/rancher/rke2", "remove the directory"}, "", nil},
		"both":           {[]string{program, unit, data, kubelet, set}, "", OK, []string{"rke2"}, Warn, []string{"kubeadm is also on the node (/usr/bin/kubelet, /var/lib/kubelet/config.yaml): rke2 was chosen", "set platform"}},
		"both, and one is configured": {
			[]string{program, unit, data, kubelet, set}, "kubeadm", OK, []string{"kubeadm, as configured"}, "", nil,
		},
		"to be RKE2":             {[]string{program, kubelet, set}, "", OK, []string{"kubeadm"}, Advice, []string{"/usr/local/bin/rke2 exists", "platform: rke2"}},
		"configured, and absent": {[]string{kubelet, set}, "k3s", Warn, []string{"k3s, as configured", "not installed"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for _, path := range c.paths {
				n.put(t, path, "")
				if path == data {
					require.NoError(t, os.Symlink("/var/lib/rancher/rke2/data/v1.33.5-rke2r1-0123456789ab/bin",
						filepath.Join(n.Platform.Root, "var/lib/rancher/rke2/bin")))
				}
			}
			n.Settings.Platform = c.named
			n.Platform = platform.Named(n.Platform.Root, c.named)
			all := n.checkPlatform()
			found(t, all[0], c.first, c.texts...)
			if c.second == "" {
				require.Len(t, all, 1)
				return
			}
			require.Len(t, all, 2)
			found(t, all[1], c.second, c.more...)
		})
	}
}
