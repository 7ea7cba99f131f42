// SPDX-License-Identifier: Apache-2.0

// Package transport sends requests to registries: over connections that all hosts share, with logins and tokens, and no
// faster than the hosts and the node's budget allow.
//
// # Words
//
// A host is a server that answers for a registry. The asked host is the one that hosts.toml or a namespace names; its
// answers (redirects, realms of tokens) may lead to other hosts. A question asks for metadata, a pull for an image.
//
// # Promises
//
//   - A host that asks to wait (429, 5xx with Retry-After) is sent nothing before that second, by whatever way:
//     questions, pulls, tokens, the hops of redirects. One that failed three requests in a row is sent nothing for a
//     minute; one that a redirect or realm led to, only for those who are led there. What was not sent is Held.
//   - Questions keep to a budget of requests an hour, which all requests count against. At most so many connections
//     to a host are open at once.
//   - A redirect or realm leads to no address that is nearer to the node than the asked host's own, unless hosts.toml
//     names the host.
//   - Credentials go to the host they belong to, and to the token server that is named for it: never to a realm
//     elsewhere, over a redirect to another host or over plain http. A host that a redirect leads to gets an
//     anonymous token at most. No error has the query of a URL, because redirects are signed there.
//   - All that is read is bounded in size and time (limits.go).
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/internal/keylock"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Options say how hosts are spoken to. The zero value has no budget and no logins.
type Options struct {
	// Version of the product, for the User-Agent. SUSE's sample nginx answers 404
	// to Go's own.
	Version string
	// Credentials gives the login for a repository on a host, zero for none, and
	// then why there is none where that is a problem; nil: none. It is not asked for
	// hosts with plain http.
	Credentials func(host, repository string) (hosts.Login, error)
	// TokenServers are hosts that see the logins of a registry although they are
	// another host, by the registry's host.
	TokenServers map[string]string
	// Roots are the authorities for hosts that have no ca of their own in hosts.toml,
	// another pool when they change; nil, or a nil pool: those that Go finds when it
	// first needs them.
	Roots func() *x509.CertPool
	// Proxy as in http.Transport; nil: http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Wrap puts a recorder around what goes on the wire, token requests included. It
	// is called once for each TLS configuration, so state over hosts lives outside of
	// it. nil: nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// RequestsPerHour is the budget of this node: what it may send to all hosts
	// together, at once or over the hour. Questions wait for it; pulls take from it
	// and never wait. 0: no budget.
	RequestsPerHour int
	// ConnectionsPerHost bounds the connections that are open to one host at once;
	// 0: 4, what a pull of three layers needs beside a question. A connection that a
	// layer comes through is taken until its end.
	ConnectionsPerHost int
	// Now is the clock for waits and for the budget; nil: time.Now.
	Now func() time.Time
	// Log gets a line for what is left out; nil: none.
	Log *slog.Logger
}

const connectionsPerHost = 4

// Client sends the requests of a node. It is safe for concurrent use.
type Client struct {
	// Dial connects instead of the dialers that hosts.toml describes; nil: those do.
	// Tests set it before the first request.
	Dial DialFunc

	options     Options
	userAgent   string
	pace        *pace
	connections *keylock.Locks // see RoundTrip
	counters    counters

	mu     sync.Mutex
	shared []*sharedTransport
}

// sharedTransport is used by all hosts with one TLS configuration, so that a mirror
// of several namespaces keeps one connection. None is ever removed: a new one comes
// with a new CA, and an idle one holds nothing.
type sharedTransport struct {
	http *http.Transport
	next http.RoundTripper // http, wrapped
}

// New makes a client; nothing is sent yet.
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

// Roots are the authorities for hosts that have no ca of their own.
func (c *Client) Roots() *x509.CertPool { return c.options.Roots() }

// Close ends the idle connections. The client can still be used.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shared {
		s.http.CloseIdleConnections()
	}
}

// UpdateClient replaces the transport that containerd's host configuration made by
// ours with the same TLS and dialer; it is a config.UpdateClientFunc. A client
// that has ours already is the copy for a host with headers only.
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

// share finds or makes the transport for the TLS configuration of made.
func (c *Client) share(made *http.Transport) *sharedTransport {
	config := made.TLSClientConfig.Clone()
	config.MinVersion = tls.VersionTLS12
	if config.RootCAs == nil {
		config.RootCAs = c.Roots()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shared {
		if sameTLS(s.http.TLSClientConfig, config) {
			return s
		}
	}
	tr := made.Clone()
	tr.TLSClientConfig = config
	tr.Proxy = c.proxyOf
	tr.DialContext = c.dialAsAsked
	tr.TLSHandshakeTimeout = tlsTimeout
	tr.ResponseHeaderTimeout = headerTimeout
	tr.MaxResponseHeaderBytes = maxHeader
	tr.MaxConnsPerHost, tr.MaxIdleConnsPerHost = c.options.ConnectionsPerHost, c.options.ConnectionsPerHost
	s := &sharedTransport{http: tr, next: tr}
	if c.options.Wrap != nil {
		s.next = c.options.Wrap(tr)
	}
	c.shared = append(c.shared, s)
	return s
}

// sameTLS compares what containerd's host configuration can set.
func sameTLS(a, b *tls.Config) bool {
	if a.InsecureSkipVerify != b.InsecureSkipVerify {
		return false
	}
	if (a.RootCAs == nil) != (b.RootCAs == nil) || a.RootCAs != nil && !a.RootCAs.Equal(b.RootCAs) {
		return false
	}
	return slices.EqualFunc(a.Certificates, b.Certificates, func(x, y tls.Certificate) bool {
		return slices.EqualFunc(x.Certificate, y.Certificate, slices.Equal)
	})
}
