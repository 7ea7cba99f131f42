// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Where a full disk has no room for the lock file, the directory is locked, by one
// agent alone.
func TestADirectoryIsLockedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := lockDirectory(dir)
	require.NoError(t, err)
	_, err = lockDirectory(dir)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, first.Close())
	again, err := lockDirectory(dir)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
