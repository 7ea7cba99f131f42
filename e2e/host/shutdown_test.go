// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// asksFirst returns a pod whose preStop hook waits for a response from the port.
func asksFirst(pod string, port int) string {
	return strings.Replace(pod, "PeriodSeconds: 5\n", "PeriodSeconds: 120\n", 1) +
		fmt.Sprintf("    lifecycle: {preStop: {httpGet: {host: 127.0.0.1, port: %d, path: /}}}\n", port)
}

// gate listens on a port, and answers all requests once it is open.
func gate(t *testing.T) (port int, open func()) {
	t.Helper()
	opened := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-opened:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close) // Close waits for pending requests
	open = sync.OnceFunc(func() { close(opened) })
	t.Cleanup(open)
	return int(netip.MustParseAddrPort(server.Listener.Addr().String()).Port()), open
}

// patientLogind is an admin's setting: logind's default delay of 5 s is too short on a busy machine.
const patientLogind = "[Login]\nInhibitDelayMaxSec=2min\n"

// TestHostShutdown shuts the host down while the agent waits for a pod. The agent finishes within the delay that logind
// grants, and the pod manifest is complete when the host is off: kubelet starts the pod at the next boot.
func TestHostShutdown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		before, end := gate(t)
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2, Kubelet: true})
		h.WriteFile("/usr/share/caasp-container-manifests/manifests/velum.yaml",
			asksFirst(story.VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__")), before))
		h.WriteFile("/etc/systemd/logind.conf.d/patient.conf", patientLogind)
		require.Equal(t, "running", h.Boot())
		hostSays(t, h, "check")
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		n.Registry.Publish("demo/velum", "4.0.0-rev2-build2.1", node.Image{})
		require.Equal(t, status.StateStaged, hostSays(t, h, "check").State)
		node.Eventually(t, "there is nothing to wait for", story.Ready, func() error { // logind hears late of an end
			if locks := inhibitors(h); strings.Contains(locks, "image-update-agent") {
				return errors.New(locks)
			}
			return nil
		})

		h.Begin("image-update-agent", "apply") // it is killed with the host
		node.Eventually(t, "the pod manifest is set aside", story.Ready, func() error {
			if all := story.Names(t, n.Manifests); slices.Contains(all, "velum.yaml") {
				return fmt.Errorf("it is there: %q", all)
			}
			return nil
		})
		locks := inhibitors(h)
		assert.Contains(t, locks, `"shutdown" "image-update-agent" "apply `, "logind knows who and why")
		assert.Contains(t, locks, `"delay"`)
		h.Must("systemctl", "poweroff")
		assert.Equal(t, "b true", h.Must("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
			"org.freedesktop.login1.Manager", "PreparingForShutdown"), "it is asked for")
		assert.Equal(t, "active", h.Show(host.Service, "ActiveState")["ActiveState"], "and not begun")
		end()
		h.Ended()

		assert.Equal(t, []string{"velum.yaml"}, story.Names(t, n.Manifests), "nothing else, no file set aside either")
		assert.Contains(t, n.ReadFile(story.VelumYAML), n.Registry.Ref("demo/velum:4.0.0-rev2"), "the shutdown has waited for it")
		n.WaitAnswer(port, "4.0.0-rev2-build2.1")
		require.Equal(t, "running", h.Boot())
		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)
		assert.Equal(t, "4.0.0-rev2-build2.1", s.Images[0].Running.Tag)
	})
}

// inhibitors returns the output of `systemd-inhibit --list`.
func inhibitors(h *host.Host) string {
	return h.Must("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager", "ListInhibitors")
}
