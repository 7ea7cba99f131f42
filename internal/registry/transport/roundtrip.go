// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
)

// DialFunc connects, as net.Dialer's DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

type sendingKey struct{}

// sending is a running request.
type sending struct {
	to      route
	dial    DialFunc // of its host
	tried   bool     // connecting was tried: later errors are the host's
	proxied bool     // the connection is to a proxy
	sent    bool     // the host, or its proxy, has accepted a connection
}

// Silent is the error of a host that accepted a request and sent no answer in time.
type Silent struct{ error }

// Unwrap returns the cause.
func (s *Silent) Unwrap() error { return s.error }

// proxyOf chooses the proxy for a request.
func (c *Client) proxyOf(req *http.Request) (*url.URL, error) {
	proxy, err := c.options.Proxy(req)
	if s, ok := req.Context().Value(sendingKey{}).(*sending); ok && err == nil && proxy != nil {
		s.proxied, err = true, s.to.checkProxied(req.URL)
	}
	return proxy, err
}

// dialAsAsked dials with the dialer of the request's host, which contains its dial_timeout.
func (c *Client) dialAsAsked(ctx context.Context, network, address string) (net.Conn, error) {
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
	c.counters.connections.Add(1)
	return &countedConn{Conn: conn, counters: &c.counters}, nil
}

// ErrPlainCredentials ends a request that would send a login without TLS.
var ErrPlainCredentials = errors.New("credentials are not sent over plain http")

// transport wraps the shared transport for the requests of a host.
type transport struct {
	client  *Client
	next    http.RoundTripper
	dial    DialFunc
	dialLed DialFunc // for hosts that an answer led to
}

// RoundTrip occupies a connection of the host until the body is read. http.Transport also limits connections, but gives
// a free one to the next request before the answer on it was read: a whole queue would be sent after the first 429.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// containerd's fallback to http for localhost, and for http hosts with TLS settings, comes after the authorizer:
	// this is the last place to check.
	if req.URL.Scheme == "http" && showsLogin(req) {
		return nil, errors.Join(ErrPlainCredentials, closeBody(req))
	}
	to := routeOf(req)
	if err := to.checkLiteral(req.URL); err != nil {
		return nil, errors.Join(err, closeBody(req))
	}
	if err := t.client.connections.Lock(req.Context(), to.host); err != nil {
		return nil, errors.Join(err, closeBody(req))
	}
	leave := sync.OnceFunc(func() { t.client.connections.Unlock(to.host) })
	if h := t.client.admit(req.Context(), to); h != nil {
		leave()
		return nil, errors.Join(h, closeBody(req))
	}
	release.Asking(req.Context())
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.send(ctx, req, to, cancel)
	if err != nil {
		cancel(nil)
		leave()
		return nil, err
	}
	context.AfterFunc(ctx, leave)
	resp.Request = req // the caller's request, as RoundTripper requires
	watch(resp, cancel, func() bool { return errors.Is(context.Cause(ctx), errStalled) })
	return resp, nil
}

// send sends a request and records whether the host asks to wait. Contrary to RoundTripper's contract, an answer that
// asks to wait is an error, so that every kind of request handles it: a question, a token, the hop of a redirect.
func (t *transport) send(
	ctx context.Context, req *http.Request, to route, cancel context.CancelCauseFunc,
) (*http.Response, error) {
	s := &sending{to: to, dial: t.dial}
	if to.isLed() {
		s.dial = t.dialLed
	}
	own := req.Clone(t.checkedAgain(ctx, s, cancel))
	own.Header.Set("User-Agent", t.client.userAgent)
	resp, err := t.next.RoundTrip(own)
	if h, ok := errors.AsType[*Held](context.Cause(ctx)); ok && err != nil {
		return nil, h
	}
	if inward, ok := errors.AsType[*inwardError](errors.Join(context.Cause(ctx), err)); ok {
		t.client.failed(to, inward)
		return nil, inward
	}
	t.client.counters.requests[purposeOf(ctx).kind].Add(1)
	if err != nil {
		err = sent.Unsaid(err, sent.Secrets(own, t.client.options.Proxy)...)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && s.sent && ctx.Err() == nil {
			err = &Silent{err}
		}
		if s.tried && ctx.Err() == nil { // otherwise connecting was not tried, or the caller canceled
			t.client.failed(to, err)
		}
		return nil, err
	}
	if h := t.client.answered(to, resp); h != nil {
		end(resp, cancel)
		return nil, h
	}
	return resp, nil
}

// checkedAgain repeats the check right before a request is sent: dialling takes seconds, in which another request may
// have been asked to wait, and the connection may have been dialled for another request. It closes the connection
// because nothing else keeps http.Transport from writing.
func (t *transport) checkedAgain(ctx context.Context, s *sending, cancel context.CancelCauseFunc) context.Context {
	ctx = context.WithValue(ctx, sendingKey{}, s)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.tried = true },
		GotConn: func(got httptrace.GotConnInfo) {
			var why error
			if h := t.client.blocked(s.to); h != nil {
				why = h
			} else {
				why = s.connected(got.Conn.RemoteAddr())
			}
			if why != nil {
				cancel(why)
				_ = got.Conn.Close()
			}
			s.sent = true
		},
	})
}

// endTimeout limits the body of a refusal.
const endTimeout = time.Second

// end reads the short body of a refusal, so that the connection can be reused, without waiting for it.
func end(resp *http.Response, cancel context.CancelCauseFunc) {
	timer := time.AfterFunc(endTimeout, func() { cancel(nil) })
	defer timer.Stop()
	discard(resp)
	cancel(nil)
}

// closeBody closes the request's body, as RoundTripper requires, when nothing is sent.
func closeBody(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	return req.Body.Close()
}

// Timeout is the error for a body that takes too long; it is a net.Error.
type Timeout string

func (t Timeout) Error() string { return string(t) }

// Timeout returns true.
func (Timeout) Timeout() bool { return true }

// Temporary returns false.
func (Timeout) Temporary() bool { return false }

// errStalled ends a body without further data. A pull has no time limit of its own, because a layer may take long; an
// endless one would keep the agent from every later poll and apply.
var errStalled = Timeout("body: no data for " + stallTimeout.String())

// watch makes a response's body end the request when it stalls.
func watch(resp *http.Response, cancel context.CancelCauseFunc, stalled func() bool) {
	if resp.Body == http.NoBody {
		cancel(nil)
		return
	}
	b := &watchedBody{ReadCloser: resp.Body, cancel: cancel, stalled: stalled}
	b.timer = time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	b.timer.Stop()
	resp.Body = b
}

// watchedBody counts the time in which the reader waits, not that in which it is busy with a slow disk.
type watchedBody struct {
	io.ReadCloser
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	stalled func() bool
}

// Read is limited by stallTimeout.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && b.stalled() {
		err = errStalled
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
