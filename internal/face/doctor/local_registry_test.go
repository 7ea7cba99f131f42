// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

func TestLocalRegistryFinding(t *testing.T) {
	t.Parallel()
	at := func(p localregistry.Position, author registryhost.Author) registryhost.Registration {
		return registryhost.Registration{Registry: "registry.suse.com", Position: p, File: "/c/registry.suse.com/hosts.toml", Author: author}
	}
	outdated, broken := at(localregistry.Gate, registryhost.Agent), at(localregistry.Off, registryhost.Edited)
	outdated.Outdated, broken.Error = true, "no such ca"
	refused, unsafe := at(localregistry.Gate, ""), "others may write to it; containerd asks the local registry, as gate"
	refused.Error = "others may write to it"
	for name, c := range map[string]struct {
		is      registryhost.Registration
		version string
		table   bool
		verdict string
		texts   []string
	}{
		"fallback":                    {at(localregistry.Fallback, registryhost.Agent), "v2.4.2", true, OK, []string{"registry.suse.com: fallback"}},
		"gate":                        {at(localregistry.Gate, registryhost.Agent), "1.7.24", true, OK, []string{"gate"}},
		"a person's":                  {at(localregistry.Gate, registryhost.Person), "2.4.2", true, OK, nil},
		"fallback, containerd hangs":  {at(localregistry.Fallback, registryhost.Agent), "2.2.7", true, Advice, []string{"never answers", "2.3", "--gate"}},
		"fallback, 1.7 hangs":         {at(localregistry.Fallback, registryhost.Agent), "1.7.24", true, Advice, []string{"never answers"}},
		"no [host] table":             {at(localregistry.Fallback, registryhost.Person), "v1.6.20", false, Fail, []string{"ignores the whole file", "[host]"}},
		"no [host] table, 2":          {at(localregistry.Gate, registryhost.Person), "2.4.2", false, OK, nil},
		"edited":                      {at(localregistry.Gate, registryhost.Edited), "2.4.2", true, Warn, []string{"edited", "remove the lines", "--gate --write"}},
		"edited away":                 {at(localregistry.Off, registryhost.Edited), "2.4.2", true, Warn, []string{"no longer asks", "enable registry.suse.com --write"}},
		"outdated":                    {outdated, "2.4.2", true, Warn, []string{"has changed"}},
		"broken":                      {broken, "2.4.2", true, Fail, []string{"no such ca"}},
		"refused":                     {refused, "2.4.2", true, Warn, []string{unsafe, "by hand"}},
		"refused, no [host] table":    {refused, "1.7.24", false, Fail, []string{"ignores the whole file", "[host]"}},
		"refused, with a table":       {refused, "1.7.24", true, Warn, []string{unsafe}},
		"a symlink, containerd hangs": {at(localregistry.Fallback, ""), "2.2.7", true, Advice, []string{"name the local registry first in the file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found(t, localRegistryFinding(c.is, c.version, c.table), c.verdict, c.texts...)
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
	gate := []registryhost.Registration{{Position: localregistry.Gate}}
	fallback := []registryhost.Registration{{Position: localregistry.Fallback}}
	found(t, checkOwnPort(procOf(t, own, "4711", "3", "4711"), gate), OK, "held by systemd")
	found(t, checkOwnPort(procOf(t, own, "4711", "3"), fallback), Fail, "other than systemd", "ss -ltnp")
	found(t, checkOwnPort(procOf(t, all, "4711", "3"), fallback), Fail, "other than systemd")
	found(t, checkOwnPort(procOf(t, "", ""), gate), Fail, "containers start the image that their tag names", "enable --now")
	found(t, checkOwnPort(procOf(t, "", ""), fallback), Warn, "no program listens", localRegistrySocket)
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

// doctor compares the files with what was enabled.
func TestDoctorMissesWhatWasEnabled(t *testing.T) {
	t.Parallel()
	var n Node
	n.StateDir, n.Containerd.CertsD = t.TempDir(), []string{t.TempDir()}
	file := filepath.Join(n.Containerd.CertsD[0], "registry.suse.com/hosts.toml")
	at := func(p localregistry.Position) []registryhost.Registration {
		return []registryhost.Registration{{Registry: "registry.suse.com", Position: p, File: file, Author: registryhost.Agent}}
	}
	lost, others := n.remembered(at(localregistry.Gate))
	require.Len(t, lost, 1)
	require.Len(t, others, 1)
	found(t, lost[0], Advice, "no record", "local-registry enable registry.suse.com --gate --write")

	m := registryhost.Memory{Dir: n.StateDir}
	_, err := m.Enabled(localregistry.Wanted{Registry: "registry.suse.com", Position: localregistry.Gate, File: file})
	require.NoError(t, err)
	lost, others = n.remembered(at(localregistry.Gate))
	assert.Empty(t, lost)
	assert.Len(t, others, 1)
	for _, now := range []localregistry.Position{localregistry.Fallback, localregistry.Off} {
		lost, others = n.remembered(at(now))
		require.Len(t, lost, 1)
		assert.Empty(t, others, "it is said once")
		found(t, lost[0], Fail, "enabled as gate", "enable registry.suse.com --gate --write", "k3s", "disable registry.suse.com --write")
	}
	for _, now := range []localregistry.Position{localregistry.Gate, localregistry.Fallback, localregistry.Off} {
		refused := registryhost.Registration{Registry: "registry.suse.com", Position: now, File: file, Error: "refused"}
		other := registryhost.Registration{Registry: "ghcr.io", Position: now, File: file, Error: "refused"}
		lost, others = n.remembered([]registryhost.Registration{refused, other})
		assert.Equal(t, now != localregistry.Off, slices.Contains(others, other))
		if now == localregistry.Gate {
			assert.Empty(t, lost)
			assert.Contains(t, others, refused)
			continue
		}
		require.Len(t, lost, 1)
		assert.NotContains(t, others, refused, "it is said once")
		found(t, lost[0], Fail, "enabled as gate", "correct that by hand, then run image-update-agent local-registry enable")
	}
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "registry.suse.com: enabled as gate, but "+file+" is gone")
	assert.Equal(t, lost, n.checkLocalRegistry(t.Context()), "no other hosts.toml names it")

	require.NoError(t, os.WriteFile(filepath.Join(n.StateDir, registryhost.WantedFile), nil, 0o600))
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "cannot tell", registryhost.WantedFile, "remove the file")
}
