// SPDX-License-Identifier: Apache-2.0

// Command locks records the answers of a real lock server to a random sequence of valid and invalid requests of several
// nodes. The tests of the FleetLock client replay it.
//
//	locks airlock http://127.0.0.1:9090 internal/fleet/fleetlock/testdata/airlock.json
//	locks poseidon http://127.0.0.1:8080 internal/fleet/fleetlock/testdata/poseidon.json 127.0.0.1:8001
//
// airlock has the groups masters, with one slot, and workers, with three, in an empty etcd. poseidon's fleetlock has a
// kubeconfig with the last argument as its server: this program serves the part of Kubernetes that it needs.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock/fleetlocktest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "locks:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return errors.New("usage: locks NAME URL FILE [KUBERNETES]")
	}
	kubernetes := &kubernetes{leases: map[string]map[string]any{}}
	if len(args) == 4 {
		listener, err := net.Listen("tcp", args[3])
		if err != nil {
			return err
		}
		server := &http.Server{Handler: kubernetes, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
	}
	table, err := record(args[1], kubernetes, len(args) == 4)
	if err != nil {
		return err
	}
	data, err := json.Marshal(table)
	if err != nil {
		return err
	}
	// One line per request and answer keeps the table readable.
	for _, at := range []string{`{"method"`, `{"status"`, `"answers"`, `"steps"`} {
		data = bytes.ReplaceAll(data, []byte(at), []byte("\n"+at))
	}
	return os.WriteFile(args[2], append(data, '\n'), 0o644)
}

const steps = 1500

func record(url string, kubernetes *kubernetes, deletes bool) (fleetlocktest.Table, error) {
	r := rand.New(rand.NewPCG(1, 2))
	var table fleetlocktest.Table
	for range steps {
		request := randomRequest(r, deletes)
		answer := fleetlocktest.Answer{Status: http.StatusOK}
		var err error
		if request.Method == http.MethodDelete {
			kubernetes.forget(request.Path)
		} else if answer, err = ask(url, request); err != nil {
			return table, err
		}
		table.Add(request, answer)
	}
	return table, nil
}

var (
	groups = []string{"masters", "masters", "workers", "workers", "none"}
	paths  = []string{"/v1/pre-reboot", "/v1/steady-state"}
	// wrong are requests with an invalid part; %s is an id.
	wrong = []fleetlocktest.Request{
		{Method: "GET", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "PUT", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "POST", Header: "", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "POST", Header: "false", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "POST", Header: "True", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "POST", Header: "true", Body: ``},
		{Method: "POST", Header: "true", Body: `{`},
		{Method: "POST", Header: "true", Body: `null`},
		{Method: "POST", Header: "true", Body: `[]`},
		{Method: "POST", Header: "true", Body: `{"client_params":null}`},
		{Method: "POST", Header: "true", Body: `{"id":"%s","group":"masters"}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"","group":"masters"}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"%s","group":""}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"%s"}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":1,"group":"masters"}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"node_uuid":"%s","group":"masters"}}`},
		{Method: "POST", Header: "true", Body: `{"CLIENT_PARAMS":{"ID":"%s","Group":"masters"}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"x","id":"%s","group":"masters"}}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters","more":1},"more":[]}`},
		{Method: "POST", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters"}} and more`},
		{Method: "POST", Path: "/v1/reboot", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
		{Method: "POST", Path: "/v1/pre-reboot/", Header: "true", Body: `{"client_params":{"id":"%s","group":"masters"}}`},
	}
)

func randomRequest(r *rand.Rand, deletes bool) fleetlocktest.Request {
	ids := fleetlocktest.IDs()
	id := ids[r.IntN(len(ids))]
	if r.IntN(8) == 0 {
		id = fleetlocktest.Stranger
	}
	group := groups[r.IntN(len(groups))]
	request := fleetlocktest.Request{Method: http.MethodPost, Header: "true"}
	switch n := r.IntN(20); {
	case n == 0 && deletes:
		return fleetlocktest.Request{Method: http.MethodDelete, Path: group}
	case n < 4:
		request = wrong[r.IntN(len(wrong))]
		request.Body = string(bytes.ReplaceAll([]byte(request.Body), []byte("%s"), []byte(id)))
	default:
		request.Body = fmt.Sprintf(`{"client_params":{"id":"%s","group":"%s"}}`, id, group)
	}
	if request.Path == "" {
		request.Path = paths[r.IntN(len(paths))]
	}
	return request
}

func ask(url string, request fleetlocktest.Request) (fleetlocktest.Answer, error) {
	req, err := http.NewRequest(request.Method, url+request.Path, bytes.NewReader([]byte(request.Body)))
	if err != nil {
		return fleetlocktest.Answer{}, err
	}
	if request.Header != "" {
		req.Header.Set("fleet-lock-protocol", request.Header)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return fleetlocktest.Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fleetlocktest.Answer{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type"), Body: string(body)}, err
}

// nodes returns the nodes of a cluster, as in its API.
func nodes() (items []any) {
	for n, machine := range fleetlocktest.Machines {
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": fmt.Sprint("node", n)},
			"status":   map[string]any{"nodeInfo": map[string]any{"machineID": machine}},
		})
	}
	return slices.Clip(items)
}
