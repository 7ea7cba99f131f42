// SPDX-License-Identifier: Apache-2.0

package kubelease_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// token is the token that the server accepts.
const token = "letmein"

// server is an API server with TLS. Its fields are set before the first request.
type server struct {
	*httptest.Server
	// before, if set, is called for each request and answers it if it returns a status other than 0. lost: the request
	// is done, but its connection is closed without an answer.
	before func(r *http.Request) int
	// rewrite, if set, changes the spec of each Lease that is written.
	rewrite    func(spec map[string]any)
	message    string                     // of refusals; empty: another
	written    func(lease map[string]any) // changes each Lease that is written; nil: nothing
	padding    int                        // spaces before each answer
	header     int                        // bytes of a header of each answer
	retryAfter string
	reason     string // of refusals
	namespaces []string
	nodes      []string

	mu       sync.Mutex
	revision int
	leases   map[string]map[string]any // by NAMESPACE/NAME
	asked    []string
}

// lost is a result of before.
const lost = -1

// start starts a server with the namespace kube-system.
func start(t testing.TB) *server {
	t.Helper()
	s := &server{namespaces: []string{"kube-system"}, leases: map[string]map[string]any{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// kubeconfig writes a kubeconfig for the server and returns its path.
func (s *server) kubeconfig(t testing.TB) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: it, user: {token: %s}}]
`, s.URL, base64.StdEncoding.EncodeToString(ca), token), 0o600))
	return path
}

// askedFor returns the methods and paths of the requests.
func (s *server) askedFor() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// edit changes a Lease as a person does; without a function it is deleted.
func (s *server) edit(name string, edit func(spec map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if edit == nil {
		delete(s.leases, name)
		return
	}
	l := s.leases[name]
	if l == nil {
		namespace, short, _ := strings.Cut(name, "/")
		l = map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": map[string]any{},
			"metadata": map[string]any{"namespace": namespace, "name": short},
		}
	}
	edit(object(l, "spec"))
	s.store(name, l)
}

// editAll changes all of a Lease, also what an API server would not accept.
func (s *server) editAll(name string, edit func(lease map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.leases[name])
}

// Lease returns a Lease; nil if there is none.
func (s *server) leaseOf(name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name]
}

// Holder returns the holder of a Lease; empty if there is none.
func (s *server) holder(name string) string {
	l := s.leaseOf(name)
	if l == nil {
		return ""
	}
	holder, _ := object(l, "spec")["holderIdentity"].(string)
	return holder
}

func object(of map[string]any, name string) map[string]any {
	value, _ := of[name].(map[string]any)
	if value == nil {
		value = map[string]any{}
		of[name] = value
	}
	return value
}

// store keeps a copy, so that one that was read stays as it was.
func (s *server) store(name string, l map[string]any) map[string]any {
	s.revision++
	object(l, "metadata")["resourceVersion"] = strconv.Itoa(s.revision)
	text, _ := json.Marshal(l)
	var kept map[string]any
	_ = json.Unmarshal(text, &kept)
	s.leases[name] = kept
	return kept
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	code := 0
	if s.before != nil {
		code = s.before(r)
	}
	var answer any
	if code <= 0 {
		isLost := code == lost
		code, answer = s.do(r)
		if isLost {
			panic(http.ErrAbortHandler)
		}
	} else {
		answer = status(code, s.reason, cmp.Or(s.message, "as the test wants"), "")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Long", strings.Repeat("x", s.header))
	if s.retryAfter != "" {
		w.Header().Set("Retry-After", s.retryAfter)
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, strings.Repeat(" ", s.padding))
	_ = json.NewEncoder(w).Encode(answer)
}

// status is Kubernetes' Status.
func status(code int, reason, message, kind string) any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
		"details": map[string]any{"kind": kind},
	}
}

func (s *server) do(r *http.Request) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+token {
		return 401, status(401, "Unauthorized", "Unauthorized", "")
	}
	if name, is := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); is {
		if !slices.Contains(s.nodes, name) {
			return 404, status(404, "NotFound", fmt.Sprintf("nodes %q not found", name), "nodes")
		}
		return 200, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}
	}
	path, is := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/")
	namespace, name, _ := strings.Cut(path, "/leases")
	name = strings.TrimPrefix(name, "/")
	if !is {
		return 404, "404 page not found"
	}
	var l map[string]any
	if body, _ := io.ReadAll(r.Body); r.Method != http.MethodGet && json.Unmarshal(body, &l) != nil {
		return 400, status(400, "BadRequest", "not JSON", "")
	}
	return s.lease(r.Method, namespace, name, l)
}

func (s *server) lease(method, namespace, name string, l map[string]any) (int, any) {
	if method == http.MethodPost {
		name, _ = object(l, "metadata")["name"].(string)
	}
	key := namespace + "/" + name
	has, known := s.leases[key]
	switch {
	case method == http.MethodPost && known:
		return 409, status(409, "AlreadyExists", fmt.Sprintf("leases.coordination.k8s.io %q already exists", name), "leases")
	case method == http.MethodPost && !slices.Contains(s.namespaces, namespace):
		return 404, status(404, "NotFound", fmt.Sprintf("namespaces %q not found", namespace), "namespaces")
	case method == http.MethodPost:
		return 201, s.store(key, l)
	case !known:
		return 404, status(404, "NotFound", fmt.Sprintf("leases.coordination.k8s.io %q not found", name), "leases")
	case method == http.MethodGet:
		return 200, has
	}
	switch object(l, "metadata")["resourceVersion"] {
	case nil, "":
		return 422, status(422, "Invalid", "metadata.resourceVersion: must be specified for an update", "leases")
	case object(has, "metadata")["resourceVersion"]:
		if s.rewrite != nil {
			s.rewrite(object(l, "spec"))
		}
		if s.written != nil {
			s.written(l)
		}
		return 200, s.store(key, l)
	}
	return 409, status(409, "Conflict", "the object has been modified; please apply your changes", "leases")
}
