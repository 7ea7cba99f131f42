// SPDX-License-Identifier: Apache-2.0

package fleetlock_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/fleetlock"
)

// poseidon answers as poseidon's fleetlock does from v0.3 on: it gives the lease to any id, and takes it back only from
// one that is Zincati's of a node of its cluster.
type poseidon struct {
	mu     sync.Mutex
	nodes  map[string]bool // Zincati's ids
	holder string
}

func (p *poseidon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var body struct {
		Client struct{ ID, Group string } `json:"client_params"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	id, isLock := body.Client.ID, strings.HasSuffix(r.URL.Path, "/v1/pre-reboot")
	refuse := func(code int, kind, value string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": value})
	}
	switch {
	case isLock && p.holder == id:
		fmt.Fprint(w, "retained reboot lease")
	case isLock && p.holder == "":
		p.holder = id
		fmt.Fprint(w, "obtained reboot lease")
	case isLock:
		refuse(http.StatusLocked, "lock_held", "reboot lease lock unavailable, held by "+p.holder)
	case p.holder == id && !p.nodes[id]:
		refuse(http.StatusInternalServerError, "internal_error", "error uncordoning node")
	case p.holder == id:
		fmt.Fprintf(w, "unlocked reboot lease for %s", p.holder)
		p.holder = ""
	case p.holder == "":
		fmt.Fprint(w, "reboot lease already unlocked")
	default:
		refuse(http.StatusLocked, "lock_held", "reboot lease unlock unavailable, held by "+p.holder)
	}
}

// A node that took the lease under its own id cannot give it back, also after its id was set to Zincati's, until
// somebody deletes the lease. From then on all works.
func TestPoseidonsServer(t *testing.T) {
	t.Parallel()
	const machine, other = "1c09ca98649c4c7abc779cd04c96812e", "2e074e9b299c41a59923c51ae16f279b"
	server := &poseidon{nodes: map[string]bool{fleetlock.ZincatiID(machine): true, fleetlock.ZincatiID(other): true}}
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

	server.holder = "" // kubectl delete lease
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
	assert.Empty(t, server.holder)
}
