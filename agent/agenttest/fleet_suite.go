// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// TestFleetLock asserts the behavior of a fleet.Locker. node returns the lock as one node sees it, of a server with one
// slot.
func TestFleetLock(t *testing.T, node func(id string) fleet.Locker) {
	t.Helper()
	a, b := node("a"), node("b")
	lock := func(l fleet.Locker, want bool) {
		t.Helper()
		answer, err := l.Lock(t.Context())
		if want {
			require.NoError(t, err)
			return
		}
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, release.ErrHeld)
		assert.True(t, e.IsTaken())
		if len(answer.Holders) > 0 { // if the server names them
			assert.Equal(t, "a", answer.Holders[0].ID)
		}
	}
	notHeld := func(l fleet.Locker, why string) {
		t.Helper()
		if err := l.Unlock(t.Context()); !errors.Is(err, fleet.ErrLost) {
			require.NoError(t, err, why)
		}
	}
	notHeld(b, "it is free")
	lock(a, true)
	lock(a, true) // it already holds the lock
	lock(b, false)
	notHeld(b, "the lock is not b's")
	lock(b, false)
	require.NoError(t, a.Unlock(t.Context()))
	notHeld(a, "it is already released")
	lock(b, true)
	require.NoError(t, b.Unlock(t.Context()))
	lock(a, true)
	require.NoError(t, a.Unlock(t.Context()))
}
