// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
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

// isFree tells whether nothing listens on the port, by listening on it for a moment.
func isFree(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	return err == nil && errors.Join(refuse(l), l.Close()) == nil
}

// refuse makes a listener refuse connections before it is closed. To close it is not enough: a program that is being
// started has a copy of each open file until its exec, which would accept connections and keep the address in use.
func refuse(l net.Listener) error {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%s: not a socket", l.Addr())
	}
	conn, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = conn.Control(func(fd uintptr) { refused = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(err, refused)
}
