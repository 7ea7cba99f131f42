// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// apply.lock.id chooses how the id is made; what the node may have under the other one of its own is given back, too.
func TestLockID(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte("1c09ca98649c4c7abc779cd04c96812e\n"), 0o600))
	s := settings{root: root}
	s.Apply.Lock.URL = "https://lock.example.com"
	own, former := s.lockID()
	assert.Len(t, own, 32)
	assert.Empty(t, former, "Zincati's id may be Zincati's")
	assert.Equal(t, own, s.lock().ID)
	s.Apply.Lock.ID = config.LockIDZincati
	id, former := s.lockID()
	assert.Equal(t, "978a225b3d7b40e9acd7ce9b62f68444", id)
	assert.Equal(t, own, former)
	assert.Equal(t, id, s.lock().ID)
}
