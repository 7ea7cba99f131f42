// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

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
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "registry.suse.com: enabled as gate, but "+file+" is gone")
	assert.Equal(t, lost, n.checkLocalRegistry(t.Context()), "no other hosts.toml names it")

	require.NoError(t, os.WriteFile(filepath.Join(n.StateDir, registryhost.WantedFile), nil, 0o600))
	lost, _ = n.remembered(nil)
	require.Len(t, lost, 1)
	found(t, lost[0], Fail, "cannot tell", registryhost.WantedFile, "remove the file")
}
