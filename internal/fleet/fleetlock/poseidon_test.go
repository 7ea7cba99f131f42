// SPDX-License-Identifier: Apache-2.0

package fleetlock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock/fleetlocktest"
)

// A node that took the lease under its own id cannot release it, even after its id was set to Zincati's, until a person
// deletes the lease. After that everything works.
func TestPoseidonsServer(t *testing.T) {
	t.Parallel()
	const machine, other, group = "1c09ca98649c4c7abc779cd04c96812e", "2e074e9b299c41a59923c51ae16f279b", "masters.a-1"
	server := &fleetlocktest.Poseidon{Nodes: []string{machine, other}}
	url := serve(t, server.ServeHTTP)
	of := func(id, former string) *fleetlock.Client {
		return client(t, url, func(o *fleetlock.Options) { o.ID, o.Former = id, former })
	}
	own, zincati := of(fleetlock.ID(machine), ""), of(fleetlock.ZincatiID(machine), fleetlock.ID(machine))
	_, err := own.Lock(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, own.Unlock(t.Context()), "500: error uncordoning node")

	answer, err := zincati.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.IsTaken())
	assert.Equal(t, []fleet.LockHolder{{ID: fleetlock.ID(machine)}}, answer.Holders)
	require.ErrorContains(t, zincati.Unlock(t.Context()), "500: error uncordoning node", "what it has under its own id stays known")

	server.Delete(group) // kubectl delete lease
	require.NoError(t, zincati.Unlock(t.Context()))
	answer, err = zincati.Lock(t.Context())
	require.NoError(t, err)
	assert.False(t, answer.Retained)
	answer, err = zincati.Lock(t.Context())
	require.NoError(t, err)
	assert.True(t, answer.Retained)
	_, err = of(fleetlock.ZincatiID(other), "").Lock(t.Context())
	require.ErrorContains(t, err, "423: reboot lease lock unavailable, held by "+fleetlock.ZincatiID(machine))
	require.NoError(t, of(fleetlock.ZincatiID(other), "").Unlock(t.Context()), "it has nothing to give back")
	require.NoError(t, zincati.Unlock(t.Context()))
	assert.Empty(t, server.Holder(group))
}
