// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// registryPatience is how long a docker-registry may take to answer; it needs 0.1 s on an idle machine.
const registryPatience = 60 * time.Second

// registryConfig is that of distribution 2.8. The unix socket spares the search for a free port; relative URLs keep
// uploads on the address that the client used.
const registryConfig = `version: 0.1
log: {accesslog: {disabled: true}, level: error}
storage:
  filesystem: {rootdirectory: %[1]s/storage}
  cache: {blobdescriptor: inmemory}
  delete: {enabled: true}
http: {net: unix, addr: %[1]s/socket, relativeurls: true}
`

// Registry is a docker-registry behind a front that counts what clients ask for and can be told to misbehave.
// Publishing goes past the front: it is not counted and works while the front is down.
type Registry struct {
	Host string // HOST:PORT, the first part of an image's name
	CA   string // file of the CA's certificate; empty for plain http

	node    *Node
	name    string
	socket  string
	tls     *tls.Config
	answer  *program // of the images
	backend *http.Transport

	lock      sync.Mutex
	front     *http.Server
	requests  []Request
	intercept Intercept
}

// Intercept answers a request itself and returns true, or returns false to let it through to the registry.
type Intercept func(w http.ResponseWriter, r *http.Request) bool

// StartRegistry starts one more registry (a mirror, say) and lets containerd know it by certs.d.
func (n *Node) StartRegistry(withTLS bool) *Registry {
	n.tb.Helper()
	n.lock.Lock()
	n.registries++
	r := &Registry{node: n, name: fmt.Sprintf("registry%d", n.registries)}
	n.lock.Unlock()

	dir := filepath.Join(n.Dir, r.name)
	r.socket = filepath.Join(dir, "socket")
	r.backend = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.socket)
		},
		DisableCompression: true, // what the registry says must reach the client as it is
	}
	config := filepath.Join(dir, "config.yml")
	if err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(config, fmt.Appendf(nil, registryConfig, dir), 0o644)); err != nil {
		n.tb.Fatalf("node: %s: %v", r.name, err)
	}
	if withTLS {
		r.makeCertificates(dir)
	}
	r.answer = &program{path: n.buildTool("answer"), layers: map[bool]v1.Layer{}}
	process := n.run(r.name, []string{searchPath()}, n.installed("docker-registry"), "serve", config)
	r.Up()
	n.tb.Cleanup(r.close)
	process.waitReady(registryPatience, r.ping)
	n.WriteHosts(r.Host, r)
	return r
}

// ping asks the registry itself, past the front.
func (r *Registry) ping() error {
	_, err := get(r.node.tb.Context(), r.backend, "http://registry/v2/")
	return err
}

// Up opens the front, at the same address as before. A registry is up when it starts.
func (r *Registry) Up() {
	r.node.tb.Helper()
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.front != nil {
		return
	}
	address := r.Host
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(r.node.tb.Context(), "tcp", address)
	if err != nil {
		r.node.tb.Fatalf("node: %s: %v", r.name, err)
		return
	}
	r.Host = listener.Addr().String()
	if r.tls != nil {
		listener = tls.NewListener(listener, r.tls)
	}
	r.front = r.newFront()
	go func(front *http.Server) { _ = front.Serve(listener) }(r.front)
}

// Down closes the front and its connections: clients get "connection refused" until Up.
func (r *Registry) Down() {
	r.node.tb.Helper()
	r.lock.Lock()
	front := r.front
	r.front = nil
	r.lock.Unlock()
	if front == nil {
		return
	}
	if err := front.Close(); err != nil {
		r.node.tb.Fatalf("node: %s: %v", r.name, err)
	}
}

func (r *Registry) close() {
	r.node.tb.Helper()
	r.Down()
	r.backend.CloseIdleConnections()
}

// Intercept sets what sees every request before the registry does; nil removes it.
func (r *Registry) Intercept(f Intercept) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.intercept = f
}

// Fail is an Intercept that answers requests of a kind with a status code.
func Fail(kind Kind, status int) Intercept {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if parse(r).Kind != kind {
			return false
		}
		http.Error(w, http.StatusText(status), status)
		return true
	}
}

// Ref is the full name of an image of this registry: Ref("demo/velum:4.0.0") is HOST:PORT/demo/velum:4.0.0.
func (r *Registry) Ref(name string) string { return r.Host + "/" + name }
