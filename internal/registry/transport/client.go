// SPDX-License-Identifier: Apache-2.0

// Package transport sends requests to registries: over connections that all hosts share, with logins and tokens, and no
// faster than the hosts and the node's budget allow.
//
// # Words
//
// A host is a server that answers for a registry. The asked host is named by hosts.toml or a namespace; its answers
// (redirects, realms of tokens) may lead to other hosts. A question requests metadata, a pull an image.
//
// # Promises
//
//   - A host that asks to wait (429, 5xx with Retry-After) gets no request before that second, of any kind:
//     questions, pulls, tokens, the hops of redirects; a person's request (TryAgain) asks it once. After three
//     consecutive failures a host gets no request for a minute; if it is the target of a redirect or realm, this
//     applies only to the hosts that led there. A request that is not sent is Held.
//   - Questions keep to a budget of requests per hour, to which all requests count. The number of open connections
//     to a host is limited.
//   - A redirect or realm cannot lead to an address that is nearer to the node than the asked host's, unless hosts.toml
//     names the host.
//   - Credentials are sent to the host they belong to, and to the token server configured for it: never to a realm
//     elsewhere, over a redirect to another host or over plain http. The target of a redirect gets at most an
//     anonymous token. No error contains the query of a URL, because redirects are signed there.
//   - Size and time of all input are limited (limits.go).
//
// Why the limits are here, below everything: containerd's resolver retries 429 and 408 at once, up to five times. So
// answers that ask to wait become transport errors, and pulls go through a source of ours that sends each request once.
// Why logins stay at home: a mirror could name its own host as the realm (CVE-2020-15157). Why nothing leads inward: an
// answer would choose what a root daemon asks, such as a cloud's metadata service.
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/keylock"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Options configure the requests. The zero value has no budget and no logins.
type Options struct {
	// Version of the product, for the User-Agent. SUSE's sample nginx answers 404 to Go's default.
	Version string
	// Credentials returns the login for a repository on a host. Without a login, the error is why a file or an entry
	// could not be used. nil: no logins. It is not called for hosts with plain http.
	Credentials func(host, repository string) (hosts.Login, error)
	// TokenServers are other hosts that receive the logins of a registry, by the registry's host.
	TokenServers map[string]string
	// Roots returns the authorities for hosts without a ca in hosts.toml, a new pool when they change; nil, or a nil
	// pool: Go's default.
	Roots func() *x509.CertPool
	// Proxy as in http.Transport; nil: http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Wrap wraps the transport below everything else, for a recorder; token requests are included. It is called once
	// per TLS configuration, so state about hosts must be outside of it. nil: none.
	Wrap func(http.RoundTripper) http.RoundTripper
	// IsPatient reports whether the node's containerd waits for the header of an answer without limit; nil: as the
	// containerd library in the agent does.
	IsPatient func() bool
	// RequestsPerHour is the budget of this node: the requests to all hosts together, at once or over the hour.
	// Questions wait for it; pulls use it and never wait. 0: no budget.
	RequestsPerHour int
	// ConnectionsPerHost limits the open connections to one host; 0: 4, enough for a pull of three layers and a
	// question. A layer occupies its connection until its end.
	ConnectionsPerHost int
	// Now is the clock for waits and for the budget; nil: time.Now.
	Now func() time.Time
	// Log receives a warning for each login that is not sent; nil: none.
	Log *slog.Logger
}

const connectionsPerHost = 4

// Client sends the requests of a node. It is safe for concurrent use.
type Client struct {
	*pace

	// Dial replaces the dialers from hosts.toml; nil: these are used. Tests set it before the first request.
	Dial DialFunc

	options     Options
	userAgent   string
	connections *keylock.Locks // see RoundTrip
	counters    counters

	mu     sync.Mutex
	shared []*sharedTransport
}

// sharedTransport is used by all hosts with one TLS configuration (and wait for a header), so that a mirror of several
// namespaces uses one connection. It is never removed: a new one is needed only for a new CA, and an idle one holds no
// resources.
type sharedTransport struct {
	http *http.Transport
	next http.RoundTripper // http, wrapped
}

// New returns a client; it sends nothing yet.
func New(o Options) *Client {
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	if o.Roots == nil {
		o.Roots = func() *x509.CertPool { return nil }
	}
	if o.ConnectionsPerHost == 0 {
		o.ConnectionsPerHost = connectionsPerHost
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{
		options: o, userAgent: "image-update-agent/" + o.Version,
		pace: newPace(o.Now, o.RequestsPerHour), connections: keylock.New(o.ConnectionsPerHost),
	}
}

// Roots returns the authorities for hosts without their own ca.
func (c *Client) Roots() *x509.CertPool { return c.options.Roots() }

// Close closes idle connections. The client can still be used.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shared {
		s.http.CloseIdleConnections()
	}
}

// UpdateClient replaces the transport from containerd's host configuration by the agent's with the same TLS and dialer;
// it is a config.UpdateClientFunc. A client that already has the agent's transport is the copy for a host with headers
// only.
func (c *Client) UpdateClient(client *http.Client) error {
	made, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil
	}
	t := &transport{client: c, next: c.share(made).next, dial: made.DialContext, dialLed: ledDialer.DialContext}
	if c.Dial != nil {
		t.dial, t.dialLed = c.Dial, c.Dial
	}
	client.Transport = t
	return nil
}

// share returns the transport for the TLS configuration of made.
func (c *Client) share(made *http.Transport) *sharedTransport {
	config := made.TLSClientConfig.Clone()
	config.MinVersion = tls.VersionTLS12
	if config.RootCAs == nil {
		config.RootCAs = c.Roots()
	}
	tr := made.Clone()
	if c.options.IsPatient != nil && c.options.IsPatient() {
		tr.ResponseHeaderTimeout = patientTimeout
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shared {
		if s.http.ResponseHeaderTimeout == tr.ResponseHeaderTimeout && hosts.SameTLS(s.http.TLSClientConfig, config) {
			return s
		}
	}
	tr.TLSClientConfig = config
	tr.Proxy = c.proxyOf
	tr.DialContext = c.dialAsAsked
	tr.TLSHandshakeTimeout = tlsTimeout
	tr.MaxResponseHeaderBytes = maxHeader
	tr.MaxConnsPerHost, tr.MaxIdleConnsPerHost = c.options.ConnectionsPerHost, c.options.ConnectionsPerHost
	s := &sharedTransport{http: tr, next: tr}
	if c.options.Wrap != nil {
		s.next = c.options.Wrap(tr)
	}
	c.shared = append(c.shared, s)
	return s
}

// Counts counts network traffic, headers and TLS included.
type Counts struct {
	Requests    uint64 // all sent requests
	Tokens      uint64 // requests to token servers, included in Requests
	Pulls       uint64 // requests of pulls without their tokens, included in Requests
	Connections uint64 // opened
	Received    uint64 // bytes
	Sent        uint64 // bytes
}

type counters struct {
	requests                    [kindPull + 1]atomic.Uint64
	connections, received, sent atomic.Uint64
}

// Kinds splits the requests by purpose: "metadata" (questions), "token" and "pull". The sum is Requests.
func (c Counts) Kinds() map[string]uint64 {
	return map[string]uint64{"metadata": c.Requests - c.Tokens - c.Pulls, "token": c.Tokens, "pull": c.Pulls}
}

// Plus adds two counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		Requests: c.Requests + d.Requests, Tokens: c.Tokens + d.Tokens, Pulls: c.Pulls + d.Pulls,
		Connections: c.Connections + d.Connections, Received: c.Received + d.Received, Sent: c.Sent + d.Sent,
	}
}

// Counts returns the network traffic since New.
func (c *Client) Counts() Counts {
	n := &c.counters
	counts := Counts{
		Tokens: n.requests[kindToken].Load(), Pulls: n.requests[kindPull].Load(),
		Connections: n.connections.Load(), Received: n.received.Load(), Sent: n.sent.Load(),
	}
	counts.Requests = n.requests[kindQuestion].Load() + counts.Tokens + counts.Pulls
	return counts
}

// countedConn counts bytes below TLS and HTTP.
type countedConn struct {
	net.Conn
	counters *counters
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counters.received.Add(uint64(max(n, 0)))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counters.sent.Add(uint64(max(n, 0)))
	return n, err
}
