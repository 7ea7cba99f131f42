// SPDX-License-Identifier: Apache-2.0

package watch

import "context"

// RuntimeEvents tells when containers start and end. That is a reason to observe the
// node and nothing else.
type RuntimeEvents interface {
	// Watch calls hear until ctx ends, from one goroutine. Of a runtime that is away
	// it hears again when that is back.
	Watch(ctx context.Context, hear func(RuntimeEvent))
}

// RuntimeEvent is a container that was started or has ended. The zero value: events
// may have been missed.
type RuntimeEvent struct {
	ContainerID string
	Ended       bool
}
