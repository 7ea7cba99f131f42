// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/watch"
)

// manyEvents exceeds the number of events that a test causes before they are received.
const manyEvents = 1024

// Watch implements watch.RuntimeEvents.
func (n *Node) Watch(ctx context.Context, hear func(watch.RuntimeEvent)) {
	events := make(chan watch.RuntimeEvent, manyEvents)
	n.mu.Lock()
	n.hearers[events] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.hearers, events)
		n.mu.Unlock()
	}()
	hear(watch.RuntimeEvent{})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			hear(e)
		}
	}
}

// tell sends an event to all watchers. The caller holds the lock.
func (n *Node) tell(e watch.RuntimeEvent) {
	for events := range n.hearers {
		select {
		case events <- e:
		default:
		}
	}
}

// Tell makes the runtime send an event.
func (n *Node) Tell(e watch.RuntimeEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(e)
}
