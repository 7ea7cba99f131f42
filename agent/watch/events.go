// SPDX-License-Identifier: Apache-2.0

package watch

import "context"

// RuntimeEvents reports when containers start and end. An event is only a reason to observe the
// node.
type RuntimeEvents interface {
	// Watch calls handle from one goroutine until ctx ends. It continues after an outage of the runtime.
	Watch(ctx context.Context, handle func(RuntimeEvent))
}

// RuntimeEvent is a container that has started or ended. The zero value: events may have been
// missed.
type RuntimeEvent struct {
	ContainerID string
	Ended       bool
}
