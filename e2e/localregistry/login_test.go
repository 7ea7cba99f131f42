// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestImageThatNeedsALogin checks that the local registry does not serve an image that only the agent has a login for,
// since containerd goes on to it even after a 401, unless an admin allows it.
func TestImageThatNeedsALogin(t *testing.T) {
	t.Parallel()
	const user, password = "node", "correct-horse-battery"
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		n := node.Start(t, node.Options{Containerd: version, Kubelet: true, TLS: true})
		r := &localRegistryRig{Node: n, own: n.LocalRegistry()}
		n.WriteFile(story.ConfigFile, localRegistryConfig)
		port := n.FreePort()
		story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
		story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
		enable(t, n, n.Registry.Host)
		r.startDaemon(t)
		story.Check(t, n)
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")

		n.Registry.Intercept(func(w http.ResponseWriter, q *http.Request) bool {
			u, p, _ := q.BasicAuth()
			if u == user && p == password {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		story.Login(n, user, password)
		story.IsCurrent(t, story.Check(t, n))
		r.own.Forget()
		n.CRI().Stop("dashboard")
		message := r.waits(t, "velum", "demo/velum")
		assert.NotContains(t, message, "not found")
		assert.NotEmpty(t, r.own.Requests(), "it was asked, and refused")
		_, err := node.Answer(port)
		require.Error(t, err)
		status := n.Agent("status")
		assert.Contains(t, status.Stdout, "private")

		n.WriteFile(story.ConfigFile, localRegistryConfig+"localRegistry: {private: true}\n")
		story.Hangup(t, n, r.daemon)
		story.Check(t, n)
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		assert.Equal(t, 0, r.daemon.Stop().Code)
	})
}
