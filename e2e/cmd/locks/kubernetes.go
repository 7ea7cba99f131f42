// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// kubernetes is the part of an API server that poseidon's fleetlock needs: leases, nodes without pods, and a patch.
type kubernetes struct {
	mu      sync.Mutex
	leases  map[string]map[string]any
	version int
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leases), "/")
	switch {
	case strings.HasPrefix(r.URL.Path, leases) && r.Method == http.MethodGet:
		if k.leases[name] == nil {
			refuse(w, http.StatusNotFound, "NotFound")
			return
		}
		_ = json.NewEncoder(w).Encode(k.leases[name])
	case strings.HasPrefix(r.URL.Path, leases):
		k.write(w, r, body)
	case r.URL.Path == "/api/v1/nodes":
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "NodeList", "apiVersion": "v1", "items": nodes()})
	case r.URL.Path == "/api/v1/pods":
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PodList", "apiVersion": "v1", "items": []any{}})
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Node", "apiVersion": "v1"})
	default:
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// write creates or replaces a lease: the latter only if it has not changed since it was read.
func (k *kubernetes) write(w http.ResponseWriter, r *http.Request, lease map[string]any) {
	meta, _ := lease["metadata"].(map[string]any)
	if meta == nil {
		refuse(w, http.StatusBadRequest, "BadRequest")
		return
	}
	name := fmt.Sprint(meta["name"])
	old := k.leases[name]
	switch {
	case r.Method == http.MethodPost && old != nil:
		refuse(w, http.StatusConflict, "AlreadyExists")
		return
	case r.Method == http.MethodPut && (old == nil ||
		old["metadata"].(map[string]any)["resourceVersion"] != meta["resourceVersion"]):
		refuse(w, http.StatusConflict, "Conflict")
		return
	}
	k.version++
	meta["resourceVersion"] = fmt.Sprint(k.version)
	lease["kind"], lease["apiVersion"] = "Lease", "coordination.k8s.io/v1"
	k.leases[name] = lease
	_ = json.NewEncoder(w).Encode(lease)
}

// forget does the same as `kubectl delete lease`.
func (k *kubernetes) forget(group string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, "fleetlock-"+group)
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
	})
}
