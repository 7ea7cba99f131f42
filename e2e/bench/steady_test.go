// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Without changes, a poll of twenty images is twenty HEAD requests on one connection, and writes nothing on the node.
func TestSteadyPoll(t *testing.T) {
	t.Parallel()
	const polls = 5
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	twenty(t, n)
	n.WriteFile(story.ConfigFile, "interval: 1s\n")
	daemon := story.StartDaemon(t, n)
	node.Eventually(t, "first poll", story.Ready, func() error { return written(n) })
	settle(t, n)
	before := story.Look(t, n)

	var lock sync.Mutex
	clients := map[string]int{}
	n.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		lock.Lock()
		defer lock.Unlock()
		clients[r.RemoteAddr]++
		return false
	})
	n.Registry.Forget()
	node.Eventually(t, "steady polls", story.Ready, func() error {
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
	before.Unchanged(t, n)
	s := story.St(t, n)
	story.IsCurrent(t, s)
	assert.Equal(t, 0, daemon.Stop().Code)
}
