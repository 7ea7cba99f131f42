// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"net"
)

// What the tests look at beside the exported names.
var (
	HostAddresses = hostAddresses
	Sources       = sources
)

// Dial has a checker dial by dial.
func Dial(c *Checker, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.transport.DialContext = dial
}
