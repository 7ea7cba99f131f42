// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// network is what all hosts share: one http.Transport for each TLS
// configuration, so that a mirror of several namespaces keeps one connection.
type network struct {
	userAgent    string
	roots        func() *x509.CertPool
	proxy        func(*http.Request) (*url.URL, error)
	wrap         func(http.RoundTripper) http.RoundTripper
	login        func(host, repository string) (hosts.Login, error)
	tokenServers map[string]string
	log          *slog.Logger
	dial         dialFunc // instead of the host's own; only tests set it
	pace         *pace
	lanes        lanes
	counters     counters

	mu     sync.Mutex
	shared []*sharedTransport
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// sharedTransport is used by all hosts with this TLS configuration. None is
// ever removed: a new one comes with a new CA, and an idle one holds nothing.
type sharedTransport struct {
	http *http.Transport
	next http.RoundTripper // http, wrapped
}

// UpdateClient replaces the transport that containerd's host configuration made by
// ours with the same TLS and dialer; it is a config.UpdateClientFunc. A client
// that has ours already is the copy for a host with headers only.
func (n *network) UpdateClient(client *http.Client) error {
	made, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil
	}
	t := &transport{net: n, next: n.share(made).next, dial: made.DialContext, dialLed: ledDialer.DialContext}
	if n.dial != nil {
		t.dial, t.dialLed = n.dial, n.dial
	}
	client.Transport = t
	return nil
}

// share finds or makes the transport for the TLS configuration of made.
func (n *network) share(made *http.Transport) *sharedTransport {
	config := made.TLSClientConfig.Clone()
	config.MinVersion = tls.VersionTLS12
	if config.RootCAs == nil {
		config.RootCAs = n.roots()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.shared {
		if sameTLS(s.http.TLSClientConfig, config) {
			return s
		}
	}
	tr := made.Clone()
	tr.TLSClientConfig = config
	tr.Proxy = n.proxyOf
	tr.DialContext = n.dialAsAsked
	tr.TLSHandshakeTimeout = tlsTimeout
	tr.ResponseHeaderTimeout = headerTimeout
	tr.MaxResponseHeaderBytes = maxHeader
	tr.MaxConnsPerHost, tr.MaxIdleConnsPerHost = n.lanes.width, n.lanes.width
	s := &sharedTransport{http: tr, next: tr}
	if n.wrap != nil {
		s.next = n.wrap(tr)
	}
	n.shared = append(n.shared, s)
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

func (n *network) closeIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.shared {
		s.http.CloseIdleConnections()
	}
}

type sendingKey struct{}

// sending is a request under way.
type sending struct {
	to      route
	dial    dialFunc // of the host that it is for
	tried   bool     // a connection to it was wanted: what went wrong since, went wrong there
	proxied bool     // the connection is to a proxy
}

// proxyOf chooses the proxy for a request.
func (n *network) proxyOf(req *http.Request) (*url.URL, error) {
	proxy, err := n.proxy(req)
	if s, ok := req.Context().Value(sendingKey{}).(*sending); ok && err == nil && proxy != nil {
		s.proxied, err = true, s.to.checkProxied(req.URL)
	}
	return proxy, err
}

// dialAsAsked dials with the dialer of the host that the request is for: its
// dial_timeout is hidden in there.
func (n *network) dialAsAsked(ctx context.Context, network, address string) (net.Conn, error) {
	s, ok := ctx.Value(sendingKey{}).(*sending)
	if !ok {
		return nil, fmt.Errorf("dial %s: no dialer", address)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.counters.connections.Add(1)
	return &countedConn{Conn: conn, counters: &n.counters}, nil
}

var errPlainCredentials = errors.New("credentials are not sent over plain http")

// transport is what a host's requests pass through on their way to the shared
// one.
type transport struct {
	net     *network
	next    http.RoundTripper
	dial    dialFunc
	dialLed dialFunc // of hosts that an answer led to
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// The fallback to http that containerd has for localhost, and for http hosts with
	// settings for TLS, comes after the authorizer: this is the last place to look.
	if req.URL.Scheme == "http" && showsLogin(req) {
		return nil, errors.Join(errPlainCredentials, closeBody(req))
	}
	to := routeOf(req)
	if err := to.checkLiteral(req.URL); err != nil {
		return nil, errors.Join(err, closeBody(req))
	}
	leave, err := t.net.lanes.enter(req.Context(), to.host)
	if err != nil {
		return nil, errors.Join(err, closeBody(req))
	}
	if h := t.net.pace.admit(req.Context(), to); h != nil {
		leave()
		return nil, errors.Join(h, closeBody(req))
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.send(ctx, req, to, cancel)
	if err != nil {
		cancel(nil)
		leave()
		return nil, err
	}
	context.AfterFunc(ctx, leave)
	resp.Request = req // what the caller sent, as RoundTripper wants it
	watch(resp, cancel, func() bool { return errors.Is(context.Cause(ctx), errStalled) })
	return resp, nil
}

// send sends a request and listens to what the host says of its pace. Against
// the letter of RoundTripper, an answer that asks to be left alone is an error,
// so that it is one on every way: for a question, a token, the hop of a redirect,
// and in containerd's resolver, which would ask again at once.
func (t *transport) send(
	ctx context.Context, req *http.Request, to route, cancel context.CancelCauseFunc,
) (*http.Response, error) {
	s := &sending{to: to, dial: t.dial}
	if to.isLed() {
		s.dial = t.dialLed
	}
	own := req.Clone(t.watched(ctx, s, cancel))
	own.Header.Set("User-Agent", t.net.userAgent)
	resp, err := t.next.RoundTrip(own)
	if h, ok := errors.AsType[*held](context.Cause(ctx)); ok && err != nil {
		return nil, h
	}
	if inward, ok := errors.AsType[*inwardError](errors.Join(context.Cause(ctx), err)); ok {
		t.net.pace.failed(to, inward)
		return nil, inward
	}
	t.net.counters.sentFor(kindOf(ctx))
	if err != nil {
		if s.tried && ctx.Err() == nil { // else it did not get that far, or nobody waits any more
			t.net.pace.failed(to, err)
		}
		return nil, err
	}
	if h := t.net.pace.heard(to, resp); h != nil {
		end(resp, cancel)
		return nil, h
	}
	return resp, nil
}

// watched lets a request look again whether it may be sent, right before it is:
// dialling takes seconds, in which another one may have been told to wait, and the
// connection may be one that was dialled for a request that may go there. The
// connection is closed because nothing else keeps http.Transport from writing.
func (t *transport) watched(
	ctx context.Context, s *sending, cancel context.CancelCauseFunc,
) context.Context {
	ctx = context.WithValue(ctx, sendingKey{}, s)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.tried = true },
		GotConn: func(got httptrace.GotConnInfo) {
			var why error
			if h := t.net.pace.blocked(s.to); h != nil {
				why = h
			} else {
				why = s.connected(got.Conn.RemoteAddr())
			}
			if why != nil {
				cancel(why)
				_ = got.Conn.Close()
			}
		},
	})
}

// endTimeout is for the body of a refusal, which nobody wants to read.
const endTimeout = time.Second

// end reads the little that a refusal has to say, so that the connection can be
// used again, and does not wait for it.
func end(resp *http.Response, cancel context.CancelCauseFunc) {
	timer := time.AfterFunc(endTimeout, func() { cancel(nil) })
	defer timer.Stop()
	discard(resp)
	cancel(nil)
}
