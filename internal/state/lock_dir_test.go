// SPDX-License-Identifier: Apache-2.0

package state

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// If a full disk has no space for the lock file, only the directory is locked. That also keeps out an agent that can
// create a lock file later.
func TestWithoutALockFileTheDirectoryIsLocked(t *testing.T) {
	t.Parallel()
	s := New(filepath.Join(t.TempDir(), "lib"), filepath.Join(t.TempDir(), "run"), slog.New(slog.DiscardHandler))
	require.NoError(t, os.Mkdir(s.stateDir, 0o755))
	dir, err := os.Open(s.stateDir)
	require.NoError(t, err)
	require.NoError(t, take(dir, nil))
	_, err = s.Lock(t.Context())
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "process unknown")
	require.NoError(t, dir.Close())
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(s.stateDir, lockFile)))
	_, err = s.Lock(t.Context())
	require.ErrorIs(t, err, ErrLocked, "whatever becomes of the file")
	unlock()
}

// An older agent locks only the file.
func TestALockedFileKeepsOut(t *testing.T) {
	t.Parallel()
	s := New(filepath.Join(t.TempDir(), "lib"), filepath.Join(t.TempDir(), "run"), slog.New(slog.DiscardHandler))
	require.NoError(t, os.Mkdir(s.stateDir, 0o755))
	file, err := os.Create(filepath.Join(s.stateDir, lockFile))
	require.NoError(t, err)
	require.NoError(t, take(nil, file))
	_, err = s.Lock(t.Context())
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, file.Close())
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}
