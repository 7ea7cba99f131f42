// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The agent has a login for an image, and the pod has none. The own host does not give it the image, for kubelet's pull
// would go on to it after a 401, too; unless an admin says that it may.
func TestImageThatNeedsALogin(t *testing.T) {
	t.Parallel()
	const user, password = "node", "correct-horse-battery"
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		n := node.Start(t, node.Options{Containerd: version, Kubelet: true, TLS: true})
		r := &ownHostRig{Node: n, own: n.OwnHost()}
		n.WriteFile(configFile, ownHostConfig)
		port := n.FreePort()
		template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
		rel(n, "demo/velum", "4.0.0-rev1-build1.1")
		enable(t, n, n.Registry.Host)
		r.startDaemon(t)
		check(t, n)
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
		login(n, user, password)
		isCurrent(t, check(t, n))
		r.own.Forget()
		n.CRI().Stop("dashboard")
		message := r.waits(t, "velum", "demo/velum")
		assert.NotContains(t, message, "not found")
		assert.NotEmpty(t, r.own.Requests(), "it was asked, and refused")
		_, err := node.Answer(port)
		require.Error(t, err)
		status := n.Agent("status")
		assert.Contains(t, status.Stdout, "private")

		n.WriteFile(configFile, ownHostConfig+"localhost: {private: true}\n")
		hangup(t, n, r.daemon)
		check(t, n)
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		assert.Equal(t, 0, r.daemon.Stop().Code)
	})
}
