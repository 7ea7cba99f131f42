// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// TestFleetLock is the suite of fleet.Locker. node returns the lock as one node sees it, of a server with one slot.
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
		assert.NotZero(t, e.Status)
		assert.NoError(t, e.Err, "it is refused")
		if len(answer.Holders) > 0 { // where the server says it
			assert.Equal(t, "a", answer.Holders[0].ID)
		}
	}
	require.NoError(t, b.Unlock(t.Context()), "nobody has it")
	lock(a, true)
	lock(a, true) // it keeps it
	lock(b, false)
	require.NoError(t, b.Unlock(t.Context()), "the lock is not b's")
	lock(b, false)
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, a.Unlock(t.Context()))
	lock(b, true)
	require.NoError(t, b.Unlock(t.Context()))
	lock(a, true)
	require.NoError(t, a.Unlock(t.Context()))
}
