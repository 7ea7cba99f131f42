// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

func TestOwnHostFinding(t *testing.T) {
	t.Parallel()
	at := func(p ownhost.Position, author localhost.Author) localhost.Registration {
		return localhost.Registration{Registry: "registry.suse.com", Position: p, File: "/c/registry.suse.com/hosts.toml", Author: author}
	}
	outdated, broken := at(ownhost.Gate, localhost.Agent), at(ownhost.Off, localhost.Edited)
	outdated.Outdated, broken.Error = true, "no such ca"
	for name, c := range map[string]struct {
		is      localhost.Registration
		version string
		table   bool
		verdict string
		texts   []string
	}{
		"fallback":                   {at(ownhost.Fallback, localhost.Agent), "v2.4.2", true, OK, []string{"registry.suse.com: fallback"}},
		"gate":                       {at(ownhost.Gate, localhost.Agent), "1.7.24", true, OK, []string{"gate"}},
		"a person's":                 {at(ownhost.Gate, localhost.Person), "2.4.2", true, OK, nil},
		"fallback, containerd hangs": {at(ownhost.Fallback, localhost.Agent), "2.2.7", true, Advice, []string{"never answers", "2.3", "--gate"}},
		"fallback, 1.7 hangs":        {at(ownhost.Fallback, localhost.Agent), "1.7.24", true, Advice, []string{"never answers"}},
		"no [host] table":            {at(ownhost.Fallback, localhost.Person), "v1.6.20", false, Fail, []string{"ignores the whole file", "[host]"}},
		"no [host] table, 2":         {at(ownhost.Gate, localhost.Person), "2.4.2", false, OK, nil},
		"edited":                     {at(ownhost.Gate, localhost.Edited), "2.4.2", true, Warn, []string{"edited", "before-own-host", "--gate --write"}},
		"edited away":                {at(ownhost.Off, localhost.Edited), "2.4.2", true, Warn, []string{"does not ask", "enable registry.suse.com --write"}},
		"outdated":                   {outdated, "2.4.2", true, Warn, []string{"has changed since"}},
		"broken":                     {broken, "2.4.2", true, Fail, []string{"no such ca"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found(t, ownHostFinding(c.is, c.version, c.table), c.verdict, c.texts...)
		})
	}
}

// procOf is a /proc in which a socket of an inode listens, and process 1 has the sockets of some.
func procOf(t *testing.T, address, listening string, held ...string) string {
	t.Helper()
	proc := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "net"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "1/fd"), 0o755))
	text := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n"
	if listening != "" {
		text += "   1: " + address + " 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 " + listening + " 1 0 100 0 0 10 0\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(proc, "net/tcp"), []byte(text), 0o600))
	for n, inode := range held {
		require.NoError(t, os.Symlink("socket:["+inode+"]", filepath.Join(proc, "1/fd", fmt.Sprint(n))))
	}
	return proc
}

func TestOwnPortIsSystemds(t *testing.T) {
	t.Parallel()
	const own, all = "0100007F:014E", "00000000:014E" // 127.0.0.1:334, *:334
	gate := []localhost.Registration{{Position: ownhost.Gate}}
	fallback := []localhost.Registration{{Position: ownhost.Fallback}}
	found(t, checkOwnPort(procOf(t, own, "4711", "3", "4711"), gate), OK, "held by systemd")
	found(t, checkOwnPort(procOf(t, own, "4711", "3"), fallback), Fail, "another program", "ss -ltnp")
	found(t, checkOwnPort(procOf(t, all, "4711", "3"), fallback), Fail, "another program")
	found(t, checkOwnPort(procOf(t, "", ""), gate), Fail, "containers start what their tags name", "enable --now")
	found(t, checkOwnPort(procOf(t, "", ""), fallback), Warn, "no program listens", ownHostSocket)
	found(t, checkOwnPort(t.TempDir(), gate), Warn, "net/tcp")
}

// The kernel writes addresses as the test above has them.
func TestListenerIsFoundInTheKernelsTable(t *testing.T) {
	t.Parallel()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	inode, err := listenerAt("/proc/net/tcp", l.Addr().String())
	require.NoError(t, err)
	require.NotEmpty(t, inode)
	is, err := holds("/proc/self/fd", inode)
	require.NoError(t, err)
	assert.True(t, is)
	is, err = holds("/proc/self/fd", "1"+inode)
	require.NoError(t, err)
	assert.False(t, is)
}
