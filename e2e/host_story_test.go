// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The package in a real operating system, from the install of its RPM to a service that is ready, on the oldest systemd
// it is made for and on one that knows all keys of its units.
func TestHostBoots(t *testing.T) {
	t.Parallel()
	for _, root := range []host.Root{host.Systemd252, host.Systemd257} {
		t.Run(string(root), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: node.Containerd2})
			h := host.New(t, n, root)
			h.Install(host.PackagesOf(t).Older)
			assert.Equal(t, "running", h.Boot(), "a unit has failed: %s", h.Must("systemctl", "--failed", "--no-legend"))
			is := h.Show(host.Service, "ActiveState", "SubState", "NRestarts", "StatusText")
			assert.Equal(t, map[string]string{"ActiveState": "active", "SubState": "running", "NRestarts": "0", "StatusText": is["StatusText"]}, is)
			assert.NotEmpty(t, is["StatusText"])
		})
	}
}
