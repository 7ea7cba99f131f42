// SPDX-License-Identifier: Apache-2.0

package fleetlocktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

// Poseidon answers like poseidon's fleetlock from v0.4 on: it grants the lease of a group to any id, and releases it
// only for Zincati's id of a node of its cluster. The zero value has no nodes.
type Poseidon struct {
	Nodes []string // machine ids

	mu      sync.Mutex
	holders map[string]string
}

// Holder returns the holder of a group's lease; empty if there is none.
func (p *Poseidon) Holder(group string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders[group]
}

// Delete deletes the lease of a group.
func (p *Poseidon) Delete(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holders, group)
}

func (p *Poseidon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request := Request{r.Method, r.URL.Path, r.Header.Get("fleet-lock-protocol"), string(body)}
	id, group, err := request.Client()
	switch {
	case !request.IsLock() && r.URL.Path != "/v1/steady-state":
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "required method POST")
	case request.Header != "true":
		refuse(w, http.StatusBadRequest, "missing_header", "missing required header fleet-lock-protocol: true")
	case err != nil || id == "" || group == "":
		refuse(w, http.StatusBadRequest, "decode_error", "error decoding message")
	case request.IsLock():
		p.lock(w, id, group)
	default:
		p.unlock(w, id, group)
	}
}

func (p *Poseidon) lock(w http.ResponseWriter, id, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == nil {
		p.holders = map[string]string{}
	}
	switch holder := p.holders[group]; holder {
	case id:
		fmt.Fprint(w, "retained reboot lease")
	case "":
		p.holders[group] = id
		fmt.Fprint(w, "obtained reboot lease")
	default:
		refuse(w, http.StatusLocked, "lock_held", "reboot lease lock unavailable, held by "+holder)
	}
}

func (p *Poseidon) unlock(w http.ResponseWriter, id, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch holder := p.holders[group]; {
	case holder == "":
		fmt.Fprint(w, "reboot lease already unlocked")
	case holder != id:
		refuse(w, http.StatusLocked, "lock_held", "reboot lease unlock unavailable, held by "+holder)
	case !p.isNode(id):
		refuse(w, http.StatusInternalServerError, "internal_error", "error uncordoning node")
	default:
		fmt.Fprintf(w, "unlocked reboot lease for %s", holder)
		delete(p.holders, group)
	}
}

func (p *Poseidon) isNode(id string) bool {
	for _, machine := range p.Nodes {
		if fleetlock.ZincatiID(machine) == id {
			return true
		}
	}
	return false
}

func refuse(w http.ResponseWriter, code int, kind, value string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": value})
}
