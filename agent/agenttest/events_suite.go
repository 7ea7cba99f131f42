// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/watch"
)

// EventsUnderTest is a runtime with events, and functions that cause them. Start, End and Other reach the watchers that
// are already connected.
type EventsUnderTest struct {
	Events     watch.RuntimeEvents
	Start, End func(t *testing.T, container string)
	// Other causes an event that is neither start nor end of a container: the end of a probe of kubelet. Nil: the
	// runtime has no such event.
	Other func(t *testing.T, container string)
	// Restart makes the runtime go away and come back.
	Restart func(t *testing.T)
}

// TestRuntimeEvents asserts the behavior of a watch.RuntimeEvents.
func TestRuntimeEvents(t *testing.T, fresh func(t *testing.T) EventsUnderTest) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, EventsUnderTest){
		"the first event says that something may have been missed": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
		},
		"starts and ends are heard once, in their order": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
			e.Start(t, "a")
			e.Start(t, "b")
			e.End(t, "a")
			if e.Other != nil {
				e.Other(t, "b")
			}
			e.Start(t, "c")
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a"}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "b"}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a", Ended: true}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "c"}, <-heard)
		},
		"a runtime that was away is heard again, and has perhaps told more": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
			e.Start(t, "a")
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a"}, <-heard)
			e.Restart(t)
			assert.Zero(t, <-heard)
			e.End(t, "a")
			last := <-heard
			for last == (watch.RuntimeEvent{}) { // when it went away, and when it came back
				last = <-heard
			}
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a", Ended: true}, last)
		},
		"who does not want to hear any more hears nothing": func(t *testing.T, e EventsUnderTest) {
			heard, stop := w(t, e)
			assert.Zero(t, <-heard)
			stop()
			assert.Empty(t, heard)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

// w hears events until stop, which waits for the end of Watch.
func w(t *testing.T, e EventsUnderTest) (heard <-chan watch.RuntimeEvent, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan watch.RuntimeEvent, manyEvents), make(chan struct{})
	go func() {
		defer close(ended)
		e.Events.Watch(ctx, func(event watch.RuntimeEvent) { events <- event })
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return events, stop
}
