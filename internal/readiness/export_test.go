// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"net"
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
