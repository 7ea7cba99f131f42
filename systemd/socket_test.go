// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// activatedAt makes this program a daemon with sockets from the manager: it uses the one at the path, and reports the
// result.
const activatedAt = "IMAGE_UPDATE_AGENT_TEST_ACTIVATED_AT"

func activated(path string) int {
	var log bytes.Buffer
	listener := Socket(path, slog.New(slog.NewTextHandler(&log, nil)))
	if _, set := os.LookupEnv("LISTEN_FDS"); set {
		return 3 // a child of the daemon would use them
	}
	fmt.Print(log.String())
	if listener == nil {
		fmt.Println("none")
		return 0
	}
	// A socket without clients is the wrong one.
	_ = listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(time.Minute))
	conn, err := listener.Accept()
	if err != nil {
		return 4
	}
	_, err = conn.Write([]byte("served"))
	if err != nil || conn.Close() != nil || listener.Close() != nil {
		return 5
	}
	fmt.Println("served")
	return 0
}

// start runs a daemon with sockets passed as in sd_listen_fds(3); pid is the process they are for, $$ the daemon.
func start(t *testing.T, path, pid string, sockets ...net.Listener) string {
	t.Helper()
	daemon := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=`+pid+` exec "$0"`, os.Args[0])
	daemon.Env = append(os.Environ(), activatedAt+"="+path, fmt.Sprintf("LISTEN_FDS=%d", len(sockets)))
	for _, socket := range sockets {
		file, err := socket.(interface{ File() (*os.File, error) }).File()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, file.Close()) })
		daemon.ExtraFiles = append(daemon.ExtraFiles, file) // from 3 on
	}
	out, err := daemon.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// listening returns a socket as the manager creates it.
func listening(t *testing.T, network, address string) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	return listener
}

func TestManagersSocketIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "status.sock")
	socket := listening(t, "unix", path)
	other := listening(t, "unix", filepath.Join(dir, "other.sock"))
	inet := listening(t, "tcp", "127.0.0.1:0")

	// Two daemons, one after another, each with a client that connected before.
	for range 2 {
		client, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		require.NoError(t, err)
		assert.Equal(t, "served\n", start(t, path, "$$", socket))
		answer := make([]byte, 16)
		size, err := client.Read(answer)
		require.NoError(t, err)
		assert.Equal(t, "served", string(answer[:size]))
		require.NoError(t, client.Close())
		assert.FileExists(t, path, "the file is the manager's")
	}

	out := start(t, path, "$$", other, inet)
	assert.Contains(t, out, "other.sock wanted="+path)
	assert.Contains(t, out, inet.Addr().String())
	assert.Contains(t, out, "none\n")
	assert.Equal(t, "none\n", start(t, path, "1", socket), "meant for another process")
	assert.Equal(t, "none\n", start(t, path, "$$"))
}
