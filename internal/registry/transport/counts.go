// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"sync/atomic"
)

// Counts counts network traffic, headers and TLS included.
type Counts struct {
	Requests    uint64 // all sent requests
	Tokens      uint64 // requests to token servers, included in Requests
	Pulls       uint64 // requests of pulls without their tokens, included in Requests
	Connections uint64 // opened
	Received    uint64 // bytes
	Sent        uint64 // bytes
}

type counters struct {
	requests                    [kindPull + 1]atomic.Uint64
	connections, received, sent atomic.Uint64
}

// Kinds splits the requests by purpose: "metadata" (questions), "token" and "pull". The sum is Requests.
func (c Counts) Kinds() map[string]uint64 {
	return map[string]uint64{"metadata": c.Requests - c.Tokens - c.Pulls, "token": c.Tokens, "pull": c.Pulls}
}

// Plus adds two counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		Requests: c.Requests + d.Requests, Tokens: c.Tokens + d.Tokens, Pulls: c.Pulls + d.Pulls,
		Connections: c.Connections + d.Connections, Received: c.Received + d.Received, Sent: c.Sent + d.Sent,
	}
}

// Counts returns the network traffic since New.
func (c *Client) Counts() Counts {
	n := &c.counters
	counts := Counts{
		Tokens: n.requests[kindToken].Load(), Pulls: n.requests[kindPull].Load(),
		Connections: n.connections.Load(), Received: n.received.Load(), Sent: n.sent.Load(),
	}
	counts.Requests = n.requests[kindQuestion].Load() + counts.Tokens + counts.Pulls
	return counts
}

// countedConn counts bytes below TLS and HTTP.
type countedConn struct {
	net.Conn
	counters *counters
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counters.received.Add(uint64(max(n, 0)))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counters.sent.Add(uint64(max(n, 0)))
	return n, err
}
