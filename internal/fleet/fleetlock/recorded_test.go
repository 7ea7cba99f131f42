// SPDX-License-Identifier: Apache-2.0

package fleetlock_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock/fleetlocktest"
)

// recorded are the lock servers whose answers are in testdata, and the slots of their groups.
var recorded = map[string]map[string]int{
	"airlock":  {"masters": 1, "workers": 3},
	"poseidon": {"masters": 1, "workers": 1, "none": 1},
}

// replay answers a request with its recorded answer.
type replay struct {
	t       *testing.T
	request fleetlocktest.Request
	answer  fleetlocktest.Answer
}

func (r *replay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	assert.NoError(r.t, err)
	sent := fleetlocktest.Request{Method: q.Method, Path: q.URL.Path, Header: q.Header.Get("fleet-lock-protocol"), Body: string(body)}
	assert.Equal(r.t, r.request, sent, "the client sends what was recorded")
	w.Header()["Content-Type"] = nil
	if r.answer.Type != "" {
		w.Header().Set("Content-Type", r.answer.Type)
	}
	w.WriteHeader(r.answer.Status)
	_, _ = io.WriteString(w, r.answer.Body)
}

// isClients reports whether the client could send a request.
func isClients(r fleetlocktest.Request) bool {
	id, group, err := r.Client()
	return err == nil && r.Method == http.MethodPost && r.Header == "true" &&
		r.Body == `{"client_params":{"id":"`+id+`","group":"`+group+`"}}` && id != "" && group != "" &&
		(r.IsLock() || r.Path == "/v1/steady-state")
}

// The client interprets the answers of real lock servers correctly: as many nodes hold the lock as there are slots, and
// a node that was refused or has released it does not.
func TestAnswersOfRealServers(t *testing.T) {
	t.Parallel()
	for name, slots := range recorded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, err := fleetlocktest.Read("testdata/" + name + ".json")
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(table.Steps), 1000)
			server := &replay{t: t}
			s := httptest.NewServer(server)
			t.Cleanup(s.Close)
			holders := map[string][]string{}
			given, taken, back := 0, 0, 0
			for n, step := range table.Steps {
				server.request, server.answer = table.Requests[step[0]], table.Answers[step[1]]
				id, group, _ := server.request.Client()
				had := slices.Contains(holders[group], id)
				without := slices.DeleteFunc(slices.Clone(holders[group]), func(h string) bool { return h == id })
				switch {
				case server.request.Method == http.MethodDelete:
					delete(holders, server.request.Path)
					continue
				case server.request.IsLock() && server.answer.Status == http.StatusOK:
					holders[group] = append(without, id)
				case server.answer.Status == http.StatusOK:
					holders[group] = without
				}
				if !isClients(server.request) {
					continue
				}
				c := client(t, s.URL, func(o *fleetlock.Options) { o.ID, o.Group = id, group })
				if server.request.IsLock() {
					answer, err := c.Lock(t.Context())
					refused, _ := errors.AsType[*fleet.LockError](err)
					switch {
					case err == nil:
						given++
						require.LessOrEqual(t, len(without), slots[group]-1, "step %d", n)
						require.Equal(t, had && name == "poseidon", answer.Retained, "step %d", n)
					case refused.IsTaken():
						taken++
						require.False(t, had, "step %d", n)
						require.Len(t, holders[group], slots[group], "step %d", n)
						if name == "poseidon" {
							require.Equal(t, []fleet.LockHolder{{ID: holders[group][0]}}, answer.Holders)
						}
					default:
						require.Zero(t, slots[group], "step %d: %v", n, err)
					}
					continue
				}
				if err := c.Unlock(t.Context()); err == nil {
					back++
					require.NotContains(t, holders[group], id, "step %d", n)
				} else if slots[group] > 0 {
					require.Contains(t, holders[group], id, "step %d: %v", n, err)
					require.Equal(t, fleetlocktest.Stranger, id, "step %d: %v", n, err)
				}
			}
			assert.Greater(t, min(given, taken, back), 100)
		})
	}
}

// The stand-in for poseidon's fleetlock answers as it does.
func TestStandInMatchesPoseidon(t *testing.T) {
	t.Parallel()
	table, err := fleetlocktest.Read("testdata/poseidon.json")
	require.NoError(t, err)
	standIn := &fleetlocktest.Poseidon{Nodes: fleetlocktest.Machines}
	for n, step := range table.Steps {
		request, want := table.Requests[step[0]], table.Answers[step[1]]
		if request.Method == http.MethodDelete {
			standIn.Delete(request.Path)
			continue
		}
		r := httptest.NewRequestWithContext(t.Context(), request.Method, request.Path, strings.NewReader(request.Body))
		r.Header.Set("fleet-lock-protocol", request.Header)
		w := httptest.NewRecorder()
		standIn.ServeHTTP(w, r)
		got := fleetlocktest.Answer{Status: w.Code, Type: w.Header().Get("Content-Type"), Body: w.Body.String()}
		if got.Type == "" {
			got.Type = http.DetectContentType(w.Body.Bytes())
		}
		require.Equal(t, want, got, "step %d: %+v", n, request)
	}
}

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
