// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// listening returns the address of a program that does something with a connection.
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

// The agent's own question is answered as containerd's, and is none that has started a container.
func TestAsk(t *testing.T) {
	t.Parallel()
	s, _ := server(t, ownhost.Table{Entries: []ownhost.Entry{velum}})
	address := listening(t, func(conn net.Conn) {
		s.serve(conn, func() {})
		_ = conn.Close()
	})
	require.NoError(t, ask(t.Context(), address, velum))
	assert.NoFileExists(t, filepath.Join(s.answersDir, AnswersFile))

	other := velum
	other.Digest = digest.FromString("other")
	require.ErrorContains(t, ask(t.Context(), address, other), "another program")
	other.Tag = "5.0.0-rev1"
	require.ErrorContains(t, ask(t.Context(), address, other), "404 Not Found")
	require.NoError(t, os.Remove(s.table.Path))
	require.ErrorContains(t, ask(t.Context(), address, velum), "404 Not Found")
}

func TestAskWhereNothingAnswers(t *testing.T) {
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
