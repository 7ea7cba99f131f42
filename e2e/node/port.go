// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports are below the range that Linux uses for outgoing connections (net.ipv4.ip_local_port_range starts at 32768).
const firstPort, ports = 20000, 12000

// FreePort returns a free TCP port of 127.0.0.1 that no other test gets until the node has ended: a pod of the node
// could listen on it once more while the test cleans up.
func (n *Node) FreePort() int {
	n.tb.Helper()
	port, release := reservePort(n.tb)
	n.lock.Lock()
	defer n.lock.Unlock()
	n.ports = append(n.ports, release)
	return port
}

// FreePort returns a free TCP port of 127.0.0.1 that no other test gets until this one has ended.
func FreePort(tb TB) int {
	tb.Helper()
	port, release := reservePort(tb)
	tb.Cleanup(release)
	return port
}

// reservePort returns a free port that no other test gets until it is released.
func reservePort(tb TB) (port int, release func()) {
	tb.Helper()
	for range ports {
		port := firstPort + rand.IntN(ports)
		reservation, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@iua-test-port-%d", port), Net: "unix"})
		if err != nil {
			continue // reserved by another test
		}
		if !isFree(port) {
			_ = reservation.Close()
			continue
		}
		return port, func() { _ = reservation.Close() }
	}
	tb.Fatalf("node: no free port: %v", syscall.EADDRINUSE)
	return 0, nil
}

// isFree tells whether nothing listens on the port, by listening on it for a moment. Go starts no program in that
// moment: until its exec, a program has a copy of each open file, and the copy would keep the port in use.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
