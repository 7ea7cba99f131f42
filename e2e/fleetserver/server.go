// SPDX-License-Identifier: Apache-2.0

// Package fleetserver is a server of the FleetLock protocol over etcd, for tests: a counting semaphore with owners, in
// one key per group. Every change is a transaction on the key's version, so any number of servers may run. As an
// extension it names the holders in its answers.
package fleetserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Server answers the requests of clients. Slots is how many nodes of a group may hold the lock; below 1: one.
type Server struct {
	Etcd  Store
	Slots int
}

// semaphore is the value of a group's key.
type semaphore struct {
	Slots   int      `json:"total_slots"`
	Holders []holder `json:"holders"`
}

type holder struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// failure is an error of the protocol.
type failure struct {
	code    int
	Kind    string   `json:"kind"`
	Value   string   `json:"value"`
	Holders []holder `json:"holders,omitempty"`
	Slots   int      `json:"slots,omitempty"`
}

func (f *failure) Error() string { return f.Value }

// group is the protocol's grammar.
var group = regexp.MustCompile(`^[a-zA-Z0-9.-]+$`)

// ServeHTTP answers POST /v1/pre-reboot and /v1/steady-state.
func (s Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	held, err := s.serve(r)
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = json.NewEncoder(w).Encode(map[string]any{"holders": held.Holders, "slots": held.Slots})
		return
	}
	f := &failure{code: http.StatusServiceUnavailable, Kind: "etcd", Value: err.Error()}
	_ = errors.As(err, &f)
	w.WriteHeader(f.code)
	_ = json.NewEncoder(w).Encode(f)
}

func (s Server) serve(r *http.Request) (semaphore, error) {
	var body struct {
		Params struct {
			ID    string `json:"id"`
			Group string `json:"group"`
		} `json:"client_params"`
	}
	lock := strings.HasSuffix(r.URL.Path, "/v1/pre-reboot")
	switch {
	case !lock && !strings.HasSuffix(r.URL.Path, "/v1/steady-state"):
		return semaphore{}, &failure{code: http.StatusNotFound, Kind: "not_found", Value: "no such endpoint"}
	case r.Method != http.MethodPost:
		return semaphore{}, &failure{code: http.StatusMethodNotAllowed, Kind: "method_not_allowed", Value: "want POST"}
	case r.Header.Get("fleet-lock-protocol") != "true":
		return semaphore{}, &failure{
			code: http.StatusBadRequest, Kind: "missing_header", Value: "want fleet-lock-protocol: true",
		}
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&body); err != nil {
		return semaphore{}, &failure{code: http.StatusBadRequest, Kind: "failed_decoding_request", Value: err.Error()}
	}
	if body.Params.ID == "" || !group.MatchString(body.Params.Group) {
		return semaphore{}, &failure{
			code: http.StatusBadRequest, Kind: "invalid_client_params", Value: "want an id and a group",
		}
	}
	return s.change(r.Context(), body.Params.Group, func(sem *semaphore) error {
		at := slices.IndexFunc(sem.Holders, func(h holder) bool { return h.ID == body.Params.ID })
		switch {
		case lock && at >= 0 || !lock && at < 0: // recursive
		case !lock:
			sem.Holders = slices.Delete(sem.Holders, at, at+1)
		case len(sem.Holders) >= sem.Slots:
			return &failure{
				code: http.StatusConflict, Kind: "failed_lock_semaphore_full",
				Value:   "semaphore currently full, all slots are locked already",
				Holders: sem.Holders, Slots: sem.Slots,
			}
		default:
			sem.Holders = append(sem.Holders, holder{ID: body.Params.ID, Since: time.Now().UTC().Truncate(time.Second)})
		}
		return nil
	})
}

// tries limits how often a change is repeated because of a concurrent one.
const tries = 20

// change changes the semaphore of a group in one transaction.
func (s Server) change(ctx context.Context, group string, do func(*semaphore) error) (semaphore, error) {
	key := "fleetlock/groups/" + group
	for range tries {
		text, version, err := s.Etcd.Get(ctx, key)
		if err != nil {
			return semaphore{}, err
		}
		sem := semaphore{Slots: max(s.Slots, 1), Holders: []holder{}}
		if version > 0 {
			if err := json.Unmarshal(text, &sem); err != nil {
				return sem, fmt.Errorf("semaphore: %w", err)
			}
		}
		if err := do(&sem); err != nil {
			return sem, err
		}
		next, err := json.Marshal(sem)
		if err != nil {
			return sem, err
		}
		if version > 0 && string(next) == string(text) {
			return sem, nil
		}
		done, err := s.Etcd.Put(ctx, key, next, version)
		if err != nil || done {
			return sem, err
		}
	}
	return semaphore{}, &failure{
		code: http.StatusConflict, Kind: "conflict", Value: "too many others change the semaphore",
	}
}
