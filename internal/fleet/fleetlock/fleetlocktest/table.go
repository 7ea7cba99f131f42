// SPDX-License-Identifier: Apache-2.0

// Package fleetlocktest has the answers of real lock servers to random requests, and a server that answers like
// poseidon's fleetlock.
package fleetlocktest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

// Machines are the ids of the machines of a cluster.
var Machines = []string{
	"1c09ca98649c4c7abc779cd04c96812e", "2e074e9b299c41a59923c51ae16f279b", "3d1219c7c4c5404aaa1f6d2a48adfda4",
}

// IDs returns the ids of the cluster's nodes for a lock server, as Zincati makes them.
func IDs() (ids []string) {
	for _, machine := range Machines {
		ids = append(ids, fleetlock.ZincatiID(machine))
	}
	return ids
}

// Stranger is an id of none of the nodes: the agent's own id of the first machine.
var Stranger = fleetlock.ID(Machines[0])

// Request is a request to a lock server. DELETE of a group is not sent: the lease of that group was deleted behind the
// server.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Header string `json:"header"` // fleet-lock-protocol; empty: none
	Body   string `json:"body"`
}

// Answer is the server's answer.
type Answer struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

// Table is a sequence of requests, each with its answer.
type Table struct {
	Requests []Request `json:"requests"`
	Answers  []Answer  `json:"answers"`
	Steps    [][2]int  `json:"steps"` // of Requests and of Answers
}

// Read reads a file written by e2e/cmd/locks.
func Read(file string) (table Table, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &table)
	}
	return table, err
}

// Add adds a step.
func (t *Table) Add(request Request, answer Answer) {
	step := [2]int{slices.Index(t.Requests, request), slices.Index(t.Answers, answer)}
	if step[0] < 0 {
		step[0], t.Requests = len(t.Requests), append(t.Requests, request)
	}
	if step[1] < 0 {
		step[1], t.Answers = len(t.Answers), append(t.Answers, answer)
	}
	t.Steps = append(t.Steps, step)
}

// Client returns the id and group of the request's body, as far as Go's decoder finds them.
func (r Request) Client() (id, group string, err error) {
	var body struct {
		Params struct {
			ID    string `json:"id"`
			Group string `json:"group"`
		} `json:"client_params"`
	}
	err = json.NewDecoder(strings.NewReader(r.Body)).Decode(&body)
	return body.Params.ID, body.Params.Group, err
}

// IsLock reports whether the request is for the lock; otherwise it is for the unlock, if the path is part of the
// protocol.
func (r Request) IsLock() bool { return r.Path == "/v1/pre-reboot" }
