// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

// doctor compares the files with what was enabled.
func TestDoctorMissesWhatWasEnabled(t *testing.T) {
	t.Parallel()
	var n Node
	n.StateDir, n.Containerd.CertsD = t.TempDir(), []string{t.TempDir()}
	file := filepath.Join(n.Containerd.CertsD[0], "registry.suse.com/hosts.toml")
	at := func(p ownhost.Position) []localhost.Registration {
		return []localhost.Registration{{Registry: "registry.suse.com", Position: p, File: file, Author: localhost.Agent}}
	}
	lost, others := n.remembered(at(ownhost.Gate))
	require.Len(t, lost, 1)
	require.Len(t, others, 1)
	found(t, lost[0], Advice, "not remembered", "localhost enable registry.suse.com --gate --write")

	m := localhost.Memory{Dir: n.StateDir}
	_, err := m.Enabled(ownhost.Wanted{Registry: "registry.suse.com", Position: ownhost.Gate, File: file})
	require.NoError(t, err)
	lost, others = n.remembered(at(ownhost.Gate))
	assert.Empty(t, lost)
	assert.Len(t, others, 1)
	for _, now := range []ownhost.Position{ownhost.Fallback, ownhost.Off} {
		lost, others = n.remembered(at(now))
		require.Len(t, lost, 1)
		assert.Empty(t, others, "it is said once")
		found(t, lost[0], Fail, "it was enabled as gate", "enable registry.suse.com --gate --write", "k3s", "disable registry.suse.com --write")
	}
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "registry.suse.com: it was enabled as gate: "+file+" is gone")
	assert.Equal(t, lost, n.checkOwnHost(t.Context()), "no other hosts.toml names it")

	require.NoError(t, os.WriteFile(filepath.Join(n.StateDir, localhost.WantedFile), nil, 0o600))
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "is not known", localhost.WantedFile, "remove the file")
}
