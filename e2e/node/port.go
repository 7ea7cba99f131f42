// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports are taken from below the range that Linux gives to outgoing connections
// (net.ipv4.ip_local_port_range begins at 32768).
const firstPort, ports = 20000, 12000

// FreePort returns a port as the function of that name does, for the test of the node.
func (n *Node) FreePort() int {
	n.tb.Helper()
	return FreePort(n.tb)
}

// FreePort returns a TCP port of 127.0.0.1 that is free, and that no other test gets before
// this one has ended.
func FreePort(tb TB) int {
	tb.Helper()
	for range ports {
		port := firstPort + rand.IntN(ports)
		reservation, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@iua-test-port-%d", port), Net: "unix"})
		if err != nil {
			continue // another test has it
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			_ = reservation.Close()
			continue
		}
		_ = l.Close()
		tb.Cleanup(func() { _ = reservation.Close() })
		return port
	}
	tb.Fatalf("node: no free port: %v", syscall.EADDRINUSE)
	return 0
}
