// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// runFloor tells what cmd/floor used of a processor for the same requests.
func runFloor(tb testing.TB, rounds int, host string, refs []string) time.Duration {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "floor")
	out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "./cmd/floor").CombinedOutput()
	require.NoError(tb, err, "%s", out)
	args := []string{strconv.Itoa(rounds)}
	for _, ref := range refs {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(ref, host+"/"), ":")
		args = append(args, "http://"+host+"/v2/"+repository+"/manifests/"+tag)
	}
	cmd := exec.CommandContext(tb.Context(), program, args...)
	out, err = cmd.CombinedOutput()
	require.NoError(tb, err, "%s", out)
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// notify is the service manager's end of sd_notify(3).
type notify struct {
	path string
	conn *net.UnixConn
}

func notifySocket(tb testing.TB, n *node.Node) notify {
	tb.Helper()
	path := filepath.Join(n.Dir, "notify")
	require.NoError(tb, os.RemoveAll(path))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return notify{path: path, conn: conn}
}

// await reads messages until one has the line.
func (s notify) await(tb testing.TB, line string) {
	tb.Helper()
	require.NoError(tb, s.conn.SetReadDeadline(time.Now().Add(ready)))
	buf := make([]byte, 64<<10)
	for {
		size, err := s.conn.Read(buf)
		require.NoError(tb, err, "waiting for %s", line)
		if slices.Contains(strings.Split(string(buf[:size]), "\n"), line) {
			return
		}
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
