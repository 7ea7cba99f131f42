// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSearchForASecret checks that the search finds a secret in every output of the agent, and in no other file.
func TestSearchForASecret(t *testing.T) {
	t.Parallel()
	const secret = "p%ss word"
	places := []struct {
		path, text string
		searched   int
		found      bool
	}{
		{"log/agent0.out", "all is well", 1, false},
		{"log/agent0.err", "at https://u:p%25ss%20word@reg", 1, true},
		{"log/agent1.out", "?sig=p%25ss+word", 1, true},
		{"root/run/image-update-agent/status.json", `{"error":"` + secret + `"}`, 1, true},
		{"root/var/lib/image-update-agent/rendered/velum.yaml", base64.StdEncoding.EncodeToString([]byte(secret)), 1, true},
		{"root/etc/salt/grains", secret, 1, true},
		{"root/etc/containerd/certs.d/reg/hosts.toml", secret, 0, false},
		{"log/containerd.out", secret, 0, false},
	}
	for _, p := range places {
		n := &Node{Dir: t.TempDir(), tb: t}
		n.Root = filepath.Join(n.Dir, "root")
		path := filepath.Join(n.Dir, p.path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(p.text), 0o600))
		searched, found, err := n.search(secret)
		require.NoError(t, err)
		assert.Equal(t, p.searched, searched, p.path)
		assert.Equal(t, p.found, len(found) > 0, p.path)
	}
}
