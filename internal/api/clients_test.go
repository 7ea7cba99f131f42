// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever holds all connections of the status socket keeps others from it, and
// nobody from the one that acts.
func TestClientsOfASocketAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	status, acting := filepath.Join(dir, "status"), filepath.Join(dir, "agent")
	serveAt(t, status, true, &daemon{})
	serveAt(t, acting, false, &daemon{})
	var first net.Conn
	for range maxClients {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", status)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if first == nil {
			first = conn
		}
	}
	_, err := patient(acting).Status(t.Context())
	require.NoError(t, err)

	one, err := new(net.Dialer).DialContext(t.Context(), "unix", status)
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
		_, err = patient(acting).Status(t.Context())
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
