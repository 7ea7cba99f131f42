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

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

// addressPatience is how long other test programs on this machine may use the local registry's address.
const addressPatience = 2 * time.Hour

// maxHead is more than the request line and headers of any request in these tests.
const maxHead = 16 << 10

// shared is the local registry's address, which all nodes of a machine share. It finds the local registry for a request
// from the request itself, which it only peeks at: containerd names the registry whose image it wants.
var shared ownAddress

type ownAddress struct {
	lock     sync.Mutex
	listener net.Listener
	users    int
	byName   map[string]*LocalRegistry // by registry name, the ns of a request
	byClient map[string]*LocalRegistry // by client address, for requests without ns
}

// join passes requests for images of the names on to o until the test ends. It waits until no other node serves them,
// and no other test program has the address.
func (a *ownAddress) join(tb TB, names []string, o *LocalRegistry) {
	tb.Helper()
	Eventually(tb, "local registry: "+localregistry.Address, addressPatience, func() error {
		return a.tryJoin(tb, names, o)
	})
	tb.Cleanup(func() { a.leave(names) })
}

func (a *ownAddress) tryJoin(tb TB, names []string, o *LocalRegistry) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, name := range names {
		if a.byName[name] != nil {
			return fmt.Errorf("%s: another node serves it", name)
		}
	}
	if a.users == 0 {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", localregistry.Address)
		if err != nil {
			return err
		}
		a.listener, a.byName, a.byClient = l, map[string]*LocalRegistry{}, map[string]*LocalRegistry{}
		go a.serve(l)
	}
	a.users++
	for _, name := range names {
		a.byName[name] = o
	}
	return nil
}

func (a *ownAddress) leave(names []string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, name := range names {
		delete(a.byName, name)
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

func (a *ownAddress) of(conn net.Conn, r *http.Request) *LocalRegistry {
	a.lock.Lock()
	defer a.lock.Unlock()
	if o := a.byClient[conn.RemoteAddr().String()]; o != nil {
		return o
	}
	return a.byName[r.URL.Query().Get("ns")]
}

// peek waits for a whole request, and leaves it in the socket.
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

// Ask sends a raw request to the local registry ("HEAD /v2/ HTTP/1.1\r\n\r\n"), and returns all bytes of the response.
// An empty response is a connection that was closed.
func (o *LocalRegistry) Ask(ctx context.Context, request string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", localregistry.Address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	client := conn.LocalAddr().String()
	shared.lock.Lock()
	shared.byClient[client] = o
	shared.lock.Unlock()
	defer func() { // before the port is free for another client
		shared.lock.Lock()
		defer shared.lock.Unlock()
		delete(shared.byClient, client)
	}()
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return string(answer), err
}
