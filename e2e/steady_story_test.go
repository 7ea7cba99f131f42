// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// While nothing changes, a poll of twenty images is twenty HEAD requests on one
// connection, and nothing on the node is written.
func TestSteadyPoll(t *testing.T) {
	t.Parallel()
	const polls = 5
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	twenty(t, n)
	n.WriteFile(configFile, "interval: 1s\n")
	daemon := startDaemon(t, n)
	node.Eventually(t, "first poll", ready, func() error { return written(n) })
	settle(t, n)
	before := look(t, n)

	var lock sync.Mutex
	clients := map[string]int{}
	n.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		lock.Lock()
		defer lock.Unlock()
		clients[r.RemoteAddr]++
		return false
	})
	n.Registry.Forget()
	node.Eventually(t, "steady polls", ready, func() error {
		if got := n.Registry.Requests().Count("HEAD", node.Manifest); got < polls*images20 {
			return fmt.Errorf("%d requests", got)
		}
		return nil
	})
	requests := n.Registry.Requests()
	assert.Zero(t, len(requests)-requests.Count("HEAD", node.Manifest), "neither a list nor a GET: %+v", requests)
	lock.Lock()
	assert.Len(t, clients, 1, "connections")
	lock.Unlock()
	perTag := map[string]int{}
	for _, r := range requests[:polls*images20] {
		perTag[r.Repository+":"+r.Reference]++
	}
	assert.Len(t, perTag, images20)
	for tag, count := range perTag {
		assert.InDelta(t, polls, count, 1, tag) // the first poll counted may have begun before
	}
	before.unchanged(t, n)
	s := st(t, n)
	isCurrent(t, s)
	assert.Equal(t, 0, daemon.Stop().Code)
}
