// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestLoginOfARegistry checks that the agent polls and pulls from a registry with the node's login for it, and that
// none of its output contains the password. Without a login, or with a wrong one, the node stays unchanged, and the
// status has the reason.
func TestLoginOfARegistry(t *testing.T) {
	t.Parallel()
	const user, password = "node", "correct-horse-battery"
	n := node.Start(t, node.Options{Containerd: node.Containerd2, TLS: true})
	n.Secret(password)
	n.Secret(user + ":" + password)
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		u, p, _ := r.BasicAuth()
		if u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})

	s := story.Cycle(t, n, 4)
	assert.Contains(t, s.Reason, "401 Unauthorized")
	story.Login(n, user, "wrong-"+password)
	s = story.Cycle(t, n, 4)
	assert.Contains(t, s.Reason, "401 Unauthorized")
	assert.NoFileExists(t, n.Path("etc/kubernetes/manifests/velum.yaml"))

	story.Login(n, user, password)
	s = story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	assert.True(t, story.ImageOf(t, s, "velum.yaml").Staged)
	assert.False(t, s.Sources[0].Insecure)
	n.Registry.Forget()
	story.Cycle(t, n, 0)
	requests := n.Registry.Requests()
	assert.Equal(t, 1, requests.Count("HEAD", node.Manifest)-unauthorized(requests), "one HEAD, and one that was asked to log in")
}

func unauthorized(requests node.Requests) (count int) {
	for _, r := range requests {
		if r.Status == http.StatusUnauthorized {
			count++
		}
	}
	return count
}
