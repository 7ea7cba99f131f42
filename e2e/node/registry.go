// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// RegistryOptions say which registry it is and what stands before it.
type RegistryOptions struct {
	Program RegistryProgram
	TLS     bool // https, with a certificate of a CA that certs.d names
	// VirtualHost is the configuration of an nginx between clients and registry, as SUSE documents it for air-gapped
	// sites (see virtualHost); empty: there is none. It implies TLS.
	VirtualHost string
	// MaxTags is the most tags that Distribution3 lists in one answer; 0: its own 1000.
	MaxTags int
}

// Registry is a real registry behind a front that counts what clients ask for and can be told to misbehave.
// Publishing goes past the front: it is not counted and works while the front is down.
type Registry struct {
	Host string // HOST:PORT, the first part of an image's name
	CA   string // file of the CA's certificate; empty for plain http

	node    *Node
	name    string
	dir     string
	socket  string
	front   string // address of the front: Host, but for one behind nginx
	nginx   bool
	tls     *tls.Config
	answer  *program // of the images
	backend *http.Transport
	line    line

	lock      sync.Mutex
	server    *http.Server // of the front
	requests  []Request
	intercept Intercept
}

// Intercept answers a request itself and returns true, or returns false to let it through to the registry.
type Intercept func(w http.ResponseWriter, r *http.Request) bool

// StartRegistry starts one more docker-registry (a mirror, say) and lets containerd know it by certs.d.
func (n *Node) StartRegistry(withTLS bool) *Registry {
	n.tb.Helper()
	return n.StartRegistryWith(RegistryOptions{TLS: withTLS})
}

// StartRegistryWith is StartRegistry with a choice.
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
		DisableCompression: true, // what the registry says must reach the client as it is
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
	process := n.run(r.name, []string{searchPath(), noTraces}, n.registryProgram(o.Program), "serve", config)
	r.Up()
	n.tb.Cleanup(r.close)
	process.waitReady(r.ping)
	if r.nginx {
		r.startNginx(o.VirtualHost)
	}
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
	if r.server != nil {
		return
	}
	address := r.front
	if address == "" {
		address = r.node.localAddress() // not one that another connection may have while the front is down
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
	if r.tls != nil && !r.nginx {
		listener = tls.NewListener(listener, r.tls)
	}
	r.server = r.newFront()
	go func(server *http.Server) { _ = server.Serve(listener) }(r.server)
}

// Down closes the front and its connections: clients get "connection refused" until Up, and those before an nginx its
// 502.
func (r *Registry) Down() {
	r.node.tb.Helper()
	r.lock.Lock()
	server := r.server
	r.server = nil
	r.lock.Unlock()
	if server == nil {
		return
	}
	if err := server.Close(); err != nil {
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

// Page is an Intercept of a login page in the registry's place: every request is led to the path of the page; empty: it
// is answered with the page.
func Page(path string) Intercept {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if path != "" && r.URL.Path != path {
			http.Redirect(w, r, path, http.StatusFound)
			return true
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<html>Please log in.</html>") // a client that hangs up is part of the tests
		return true
	}
}

// Storage is the directory with all that the registry stores.
func (r *Registry) Storage() string { return filepath.Join(r.dir, "storage") }

// Ref is the full name of an image of this registry: Ref("demo/velum:4.0.0") is HOST:PORT/demo/velum:4.0.0.
func (r *Registry) Ref(name string) string { return r.Host + "/" + name }
