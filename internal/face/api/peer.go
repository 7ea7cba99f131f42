// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net"
	"os/user"
	"strconv"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// personOf is the person with a uid, with the name that /etc/passwd has for it.
func personOf(via string, uid uint32) status.Actor {
	a := status.Actor{Kind: status.ByPerson, Via: via, UID: &uid}
	if known, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		a.User = outside.Line(known.Username, maxWord)
	}
	return a
}

// peers is a listener on a unix socket whose connections know who has connected: their remote address is a peer.
type peers struct{ net.Listener }

// Accept waits for the next connection.
func (p peers) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if unix, is := conn.(*net.UnixConn); is {
		if uid, is := uidOf(unix); is {
			return peerConn{conn, peer{conn.RemoteAddr(), uid}}, err
		}
	}
	return conn, err
}

// peerConn is a connection of a known peer.
type peerConn struct {
	net.Conn

	from peer
}

// RemoteAddr is the peer.
func (c peerConn) RemoteAddr() net.Addr { return c.from }

// peer is the process at the other end of a connection, as it was when it connected.
type peer struct {
	net.Addr

	uid uint32
}

// uidOf asks the kernel for the peer (unix(7), SO_PEERCRED).
func uidOf(conn *net.UnixConn) (uid uint32, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		var cred *syscall.Ucred
		if cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, ok = cred.Uid, true
		}
	})
	return uid, ok && err == nil
}

// withPeer is the context of the requests of a connection.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	from, known := conn.RemoteAddr().(peer)
	if !known {
		return status.WithActor(ctx, status.Actor{Kind: status.ByPerson, Via: status.ViaSocket})
	}
	return status.WithActor(ctx, personOf(status.ViaSocket, from.uid))
}
