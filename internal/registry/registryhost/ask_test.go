// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

// listening returns the address of a program that serves connections.
func listening(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return listener.Addr().String()
}

// answering returns the address of a local registry.
func answering(t *testing.T, s *answer.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	socket, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil { // each process ends when it is idle
			err = s.ServeFile(ctx, socket)
		}
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
		assert.NoError(t, errors.Join(socket.Close(), listener.Close()))
	})
	return listener.Addr().String()
}

// The agent's own request is answered like containerd's, and does not count as the start of a container.
func TestAsk(t *testing.T) {
	t.Parallel()
	path, answers := saved(t, oneTag()), t.TempDir()
	address := answering(t, answer.NewServer(path, answers, slog.New(slog.DiscardHandler)))
	require.NoError(t, ask(t.Context(), address, velum))
	assert.NoFileExists(t, filepath.Join(answers, answer.JournalFile))

	other := velum
	other.Digest = digest.FromString("other").String()
	require.ErrorContains(t, ask(t.Context(), address, other), "another program")
	other.Tag = "5.0.0-rev1"
	require.ErrorContains(t, ask(t.Context(), address, other), "404 Not Found")
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, ask(t.Context(), address, velum), "404 Not Found")
}

func TestAskWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	require.ErrorContains(t, ask(t.Context(), closed.Addr().String(), velum), "connection refused")

	hangsUp := listening(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_ = conn.Close()
	})
	require.ErrorIs(t, ask(t.Context(), hangsUp, velum), io.ErrUnexpectedEOF)

	ctx, cancel := context.WithCancel(t.Context())
	silent := listening(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		cancel()
	})
	require.Error(t, ask(ctx, silent, velum))
}
