// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// hangLayers makes the registry hang requests for blobs except the first, an image's config, and reports the first one
// that hangs.
func hangLayers(n *node.Node) (asked <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	var count atomic.Int32
	wait := node.Hang(node.Blob)
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || count.Add(1) == 1 {
			return false
		}
		once.Do(func() { close(first) })
		return wait(w, r)
	})
	return first
}

// podPlan is a pod manifest's part of `plan --output json`.
type podPlan struct {
	PodManifest string
	Change      string
	Images      []struct {
		From, To, Change, Error string
		Notes                   []string
		Refused                 []policy.Refusal
	}
	Error string
}

// planned returns the plan by pod manifest.
func planned(t *testing.T, n *node.Node) map[string]podPlan {
	t.Helper()
	r := n.Agent("plan", "--output", "json")
	require.Equal(t, 0, r.Code, r.Stderr)
	var plan struct{ PodManifests []podPlan }
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &plan))
	pods := map[string]podPlan{}
	for _, p := range plan.PodManifests {
		pods[p.PodManifest] = p
	}
	return pods
}
