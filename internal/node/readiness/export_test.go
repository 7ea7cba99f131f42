// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"net"
	"time"
)

// Names for the tests.
var (
	HostAddresses = hostAddresses
	Sources       = sources
)

// Dial sets a checker's dial function.
func Dial(c *Checker, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.transport.DialContext = dial
}

// Started sets when a container was first seen to have started.
func Started(c *Checker, container string, at time.Time) { c.known[container].started = at }
