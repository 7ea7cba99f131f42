// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// RegistryOptions select the registry and its proxies.
type RegistryOptions struct {
	Program RegistryProgram
	TLS     bool // HTTPS, with a certificate of a CA that certs.d names
	// VirtualHost is the configuration of an nginx between clients and registry, as SUSE documents it for air-gapped
	// sites (see virtualHost); empty: no nginx. It implies TLS.
	VirtualHost string
	// MaxTags is the maximum number of tags in one list of Distribution3; 0: its default of 1000.
	MaxTags int
}

// Registry is a real registry behind a front that counts requests and can misbehave on demand. Publishing bypasses the
// front: it is not counted and works while the front is down.
type Registry struct {
	Host string // HOST:PORT, the first part of an image name
	CA   string // file of the CA's certificate; empty for plain HTTP

	node    *Node
	name    string
	dir     string
	socket  string
	front   string // address of the front: Host, unless nginx is before it
	nginx   bool
	tls     *tls.Config
	answer  string // path of the program in all images
	backend *http.Transport
	line    line

	lock      sync.Mutex
	server    *http.Server // the front's server
	listener  net.Listener // of the server, without TLS
	requests  []Request
	intercept Intercept
}

// Intercept answers a request itself and returns true, or returns false to pass it on to the registry.
type Intercept func(w http.ResponseWriter, r *http.Request) bool

// StartRegistry starts another docker-registry, for example a mirror, and adds it to certs.d.
func (n *Node) StartRegistry(withTLS bool) *Registry {
	n.tb.Helper()
	return n.StartRegistryWith(RegistryOptions{TLS: withTLS})
}

// StartRegistryWith is StartRegistry with options.
func (n *Node) StartRegistryWith(o RegistryOptions) *Registry {
	n.tb.Helper()
	n.lock.Lock()
	n.registries++
	r := &Registry{node: n, name: fmt.Sprintf("registry%d", n.registries), nginx: o.VirtualHost != ""}
	n.lock.Unlock()
	r.dir = filepath.Join(n.Dir, r.name)
	r.socket = filepath.Join(r.dir, "socket")
	r.backend = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.socket)
		},
		DisableCompression: true, // the client must get the registry's bytes unchanged
	}
	config := filepath.Join(r.dir, "config.yml")
	if err := errors.Join(os.MkdirAll(r.dir, 0o755),
		os.WriteFile(config, []byte(o.config(r.dir)), 0o644)); err != nil {
		n.tb.Fatalf("node: %s: %v", r.name, err)
	}
	if o.TLS || r.nginx {
		r.tls, r.CA = n.makeCertificates(r.dir, r.name, time.Now().Add(23*time.Hour))
	}
	r.answer = n.answer
	if o.Program == InProcess {
		r.serveInProcess()
	} else {
		n.run(r.name, registryEnv(), n.registryProgram(o.Program), "serve", config).waitReady(r.ping)
	}
	r.Up()
	n.tb.Cleanup(r.close)
	if r.nginx {
		r.startNginx(o.VirtualHost)
	}
	n.WriteHosts(r.Host, r)
	return r
}

// serveInProcess serves pushed images from memory.
func (r *Registry) serveInProcess() {
	r.node.tb.Helper()
	listener, err := new(net.ListenConfig).Listen(r.node.tb.Context(), "unix", r.socket)
	if err != nil {
		r.node.tb.Fatalf("node: %s: %v", r.name, err)
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: Patience,
	}
	r.node.tb.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
}

// ping asks the registry itself, bypassing the front.
func (r *Registry) ping() error {
	_, err := get(r.node.tb.Context(), r.backend, "http://registry/v2/")
	return err
}

// Up opens the front at the same address as before. A registry starts up.
func (r *Registry) Up() {
	r.node.tb.Helper()
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.server != nil {
		return
	}
	address := r.front
	if address == "" {
		address = r.node.localAddress() // outgoing connections do not use such ports
	}
	listener, err := new(net.ListenConfig).Listen(r.node.tb.Context(), "tcp", address)
	if err != nil {
		r.node.tb.Fatalf("node: %s: %v", r.name, err)
		return
	}
	r.front = listener.Addr().String()
	if !r.nginx {
		r.Host = r.front
	}
	r.server, r.listener = r.newFront(), listener
	if r.tls != nil && !r.nginx {
		listener = tls.NewListener(listener, r.tls)
	}
	go func(server *http.Server) { _ = server.Serve(listener) }(r.server)
}

// Down closes the front and its connections: clients get "connection refused" until Up, or nginx's 502.
func (r *Registry) Down() {
	r.node.tb.Helper()
	r.lock.Lock()
	server, listener := r.server, r.listener
	r.server = nil
	r.lock.Unlock()
	if server == nil {
		return
	}
	if err := errors.Join(refuse(listener), server.Close()); err != nil {
		r.node.tb.Fatalf("node: %s: %v", r.name, err)
	}
}

func (r *Registry) close() {
	r.node.tb.Helper()
	r.Down()
	r.backend.CloseIdleConnections()
}

// Intercept sets the function that gets every request before the registry does; nil removes it.
func (r *Registry) Intercept(f Intercept) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.intercept = f
}

// Fail returns an Intercept that answers requests of a kind with a status.
func Fail(kind Kind, status int) Intercept {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if parse(r).Kind != kind {
			return false
		}
		http.Error(w, http.StatusText(status), status)
		return true
	}
}

// Page returns an Intercept that acts as a login page in place of the registry: it redirects every request to path; if
// path is empty, it answers with the page itself.
func Page(path string) Intercept {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if path != "" && r.URL.Path != path {
			http.Redirect(w, r, path, http.StatusFound)
			return true
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<html>Please log in.</html>") // tests close connections on purpose
		return true
	}
}

// Storage returns the registry's storage directory.
func (r *Registry) Storage() string { return filepath.Join(r.dir, "storage") }

// Ref returns the full name of an image of this registry: Ref("demo/velum:4.0.0") is HOST:PORT/demo/velum:4.0.0.
func (r *Registry) Ref(name string) string { return r.Host + "/" + name }
