// SPDX-License-Identifier: Apache-2.0

package story

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Notify is the service manager's end of sd_notify(3).
type Notify struct {
	Path string
	conn *net.UnixConn
}

// NotifySocket makes the socket for NOTIFY_SOCKET.
func NotifySocket(tb testing.TB, n *node.Node) Notify {
	tb.Helper()
	path := filepath.Join(n.Dir, "notify")
	require.NoError(tb, os.RemoveAll(path))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return Notify{Path: path, conn: conn}
}

// Await reads messages until one has the line.
func (s Notify) Await(tb testing.TB, line string) {
	tb.Helper()
	require.NoError(tb, s.conn.SetReadDeadline(time.Now().Add(Ready)))
	buf := make([]byte, 64<<10)
	for {
		size, err := s.conn.Read(buf)
		require.NoError(tb, err, "waiting for %s", line)
		if slices.Contains(strings.Split(string(buf[:size]), "\n"), line) {
			return
		}
	}
}

// AwaitPart reads messages until one has a line with this prefix.
func (s Notify) AwaitPart(t *testing.T, part string) {
	t.Helper()
	require.NoError(t, s.conn.SetReadDeadline(time.Now().Add(Ready)))
	buf := make([]byte, 64<<10)
	for {
		size, err := s.conn.Read(buf)
		require.NoError(t, err, "waiting for %s", part)
		for line := range strings.Lines(string(buf[:size])) {
			if strings.HasPrefix(line, part) {
				return
			}
		}
	}
}
