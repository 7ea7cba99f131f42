// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// addressPatience is how long another program of tests on this machine may keep the own host's address.
const addressPatience = 2 * time.Hour

// maxHead is more than the line and the headers of any request of these tests.
const maxHead = 16 << 10

// shared is the own host's address, of which a machine has one. It tells by a request whose own host is asked, without
// reading it away: containerd says of which registry it wants the image.
var shared ownAddress

type ownAddress struct {
	lock     sync.Mutex
	listener net.Listener
	users    int
	byName   map[string]*OwnHost // by the name of a registry, the ns of a request
	byClient map[string]*OwnHost // by the address of a client that names none
}

// join has requests for images of the names passed on to o until the test ends. It waits until no other node serves
// them, and no other program of tests has the address.
func (a *ownAddress) join(tb TB, names []string, o *OwnHost) {
	tb.Helper()
	Eventually(tb, "own host: "+ownhost.Address, addressPatience, func() error { return a.tryJoin(tb, names, o) })
	tb.Cleanup(func() { a.leave(names, o) })
}

func (a *ownAddress) tryJoin(tb TB, names []string, o *OwnHost) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, name := range names {
		if a.byName[name] != nil {
			return fmt.Errorf("%s: another node serves it", name)
		}
	}
	if a.users == 0 {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", ownhost.Address)
		if err != nil {
			return err
		}
		a.listener, a.byName, a.byClient = l, map[string]*OwnHost{}, map[string]*OwnHost{}
		go a.serve(l)
	}
	a.users++
	for _, name := range names {
		a.byName[name] = o
	}
	return nil
}

func (a *ownAddress) leave(names []string, o *OwnHost) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, name := range names {
		delete(a.byName, name)
	}
	for client, host := range a.byClient {
		if host == o {
			delete(a.byClient, client)
		}
	}
	if a.users--; a.users == 0 {
		_ = a.listener.Close()
	}
}

func (a *ownAddress) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			request, err := peek(conn)
			if err != nil {
				return
			}
			if o := a.of(conn, request); o != nil {
				o.pass(conn, parse(request))
			}
		}()
	}
}

func (a *ownAddress) of(conn net.Conn, r *http.Request) *OwnHost {
	a.lock.Lock()
	defer a.lock.Unlock()
	if o := a.byClient[conn.RemoteAddr().String()]; o != nil {
		return o
	}
	return a.byName[r.URL.Query().Get("ns")]
}

// peek waits for a whole request, and leaves it where it is.
func peek(conn net.Conn) (*http.Request, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	head := make([]byte, maxHead)
	var size int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		size, _, failed = unix.Recvfrom(int(fd), head, unix.MSG_PEEK)
		if errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EINTR) {
			return false
		}
		return failed != nil || size == 0 || size == len(head) || bytes.Contains(head[:size], []byte("\r\n\r\n"))
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	return http.ReadRequest(bufio.NewReader(bytes.NewReader(head[:size])))
}

// Ask sends a request as it is to the own host ("HEAD /v2/ HTTP/1.1\r\n\r\n"), and returns all that comes back. No byte
// is a connection that was hung up on.
func (o *OwnHost) Ask(ctx context.Context, request string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", ownhost.Address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	shared.lock.Lock()
	shared.byClient[conn.LocalAddr().String()] = o
	shared.lock.Unlock()
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return string(answer), err
}
