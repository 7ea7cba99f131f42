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
