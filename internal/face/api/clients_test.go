// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Whoever holds all connections of the status socket loses the one that is open the longest.
func TestWhoHoldsTheStatusSocketKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	path := serve(t, true, &daemon{})
	var held []net.Conn
	for range 2 * maxReaders {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		held = append(held, conn)
	}
	for range 10 {
		_, err := patient(path).Status(t.Context())
		require.NoError(t, err)
	}
	_, err := held[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// A user with many connections loses the oldest of them, and others none.
func TestACrowdDropsWhoHasMost(t *testing.T) {
	t.Parallel()
	c := &crowd{room: 3}
	add := func(uid uint32) (*member, *member) {
		m := &member{of: c, uid: uid}
		return m, c.add(m)
	}
	root, dropped := add(0)
	assert.Nil(t, dropped)
	first, _ := add(1000)
	second, _ := add(1000)
	_, dropped = add(1000)
	assert.Same(t, first, dropped)
	_, dropped = add(1001)
	assert.Same(t, second, dropped, "also where another comes")
	assert.Equal(t, root, c.open[0])
	assert.Len(t, c.open, 3)
}

// A daemon that is killed breaks connections; its status is asked for once more, and an apply never.
func TestABrokenConnectionIsTriedOnceMoreForTheStatusOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks  int
		partial string
		ask     func(*Client) error
		asked   int32
		fails   bool
	}{
		"the status":             {1, "", statusOf, 2, false},
		"a half of it":           {1, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", statusOf, 2, false},
		"the status, never well": {9, "", statusOf, 2, true},
		"an apply": {1, "", func(c *Client) error {
			_, err := c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
			return err
		}, 1, true},
		"a check": {1, "", func(c *Client) error { _, err := c.Check(t.Context(), nil); return err }, 1, true},
	} {
		path := filepath.Join(t.TempDir(), "s")
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		var asked atomic.Int32
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
				if int(asked.Add(1)) <= c.breaks {
					answer = c.partial
				}
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}
		}()
		err = c.ask(patient(path))
		assert.Equal(t, c.fails, err != nil, "%s: %v", name, err)
		assert.Equal(t, c.asked, asked.Load(), name)
	}
}

func statusOf(c *Client) error { _, err := c.Status(context.Background()); return err }

// Whoever holds all connections of the acting socket keeps others from it, and nobody from the one that reads.
func TestClientsOfTheActingSocketAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acting, status := filepath.Join(dir, "agent"), filepath.Join(dir, "status")
	serveAt(t, acting, false, &daemon{})
	serveAt(t, status, true, &daemon{})
	var first net.Conn
	for range maxClients {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", acting)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if first == nil {
			first = conn
		}
	}
	_, err := patient(status).Status(t.Context())
	require.NoError(t, err)

	one, err := new(net.Dialer).DialContext(t.Context(), "unix", acting)
	require.NoError(t, err)
	t.Cleanup(func() { _ = one.Close() })
	_, err = fmt.Fprint(one, "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n")
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, err := one.Read(make([]byte, 1))
		answered <- err
	}()
	for range 20 { // one would be time enough for an answer, if there was one
		_, err = patient(status).Status(t.Context())
		require.NoError(t, err)
	}
	assert.Empty(t, answered, "one more than there is room for waits")
	require.NoError(t, first.Close())
	require.NoError(t, <-answered)
}

// A socket whose connections others have is told apart from one without a daemon.
func TestASocketThatIsFullIsBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := filepath.Join(dir, "status.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", full) // nobody accepts
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	c := NewClient(full)
	c.patience = 50 * time.Millisecond
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon, "the service manager's socket, and no daemon yet")
	serveAt(t, filepath.Join(dir, "agent.sock"), false, &daemon{})
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrBusy)
	require.NotErrorIs(t, err, ErrNoDaemon)
	for err == nil || !errors.Is(err, syscall.EAGAIN) { // fill the queue of the kernel
		fd, e := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		require.NoError(t, e)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: full})
	}
	_, err = NewClient(full).Status(t.Context())
	require.ErrorIs(t, err, ErrBusy)
}

// What no verb reads is read to a bound, too.
func TestBodiesThatNobodyReadsAreBounded(t *testing.T) {
	t.Parallel()
	c := patient(serve(t, false, &daemon{})) // a call of check would panic
	_, err := c.do(t.Context(), http.MethodPost, "/v1/check", bytes.Repeat([]byte(" "), maxRequest+1))
	require.ErrorContains(t, err, "400")
}

// A client reads a status and an event of maxLine, and no more.
func TestAnswersThatAClientReadsAreBounded(t *testing.T) {
	t.Parallel()
	check := func(c *Client) error { _, err := c.Check(t.Context(), nil); return err }
	errShown := errors.New("shown")
	watch := func(c *Client) error {
		err := c.Watch(t.Context(), func(status.Status) error { return errShown })
		if errors.Is(err, errShown) {
			return nil
		}
		return err
	}
	for _, a := range []struct {
		title, answer string
		ask           func(*Client) error
		want          error // above the limit
	}{
		{"status", `{}`, statusOf, io.ErrUnexpectedEOF},
		{"event", `{"result":{"status":{}}}` + "\n", check, bufio.ErrTooLong},
		{"status of a watch", "{}\n", watch, bufio.ErrTooLong},
	} {
		for _, n := range []int{maxLine - 1, maxLine, maxLine + 1} {
			t.Run(fmt.Sprintf("%s %+d", a.title, n-maxLine), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "s")
				listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
				require.NoError(t, err)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, strings.Repeat(" ", n-len(a.answer))+a.answer)
				}))
				require.NoError(t, server.Listener.Close())
				server.Listener = listener
				server.Start()
				t.Cleanup(server.Close)
				if err = a.ask(patient(path)); n <= maxLine {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, a.want)
			})
		}
	}
}
