// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
)

// authorizer is containerd's, made fit for a process that lives for months:
// containerd's keeps a failed token request for ever, and a token without an
// expiry, too, unless the host calls it invalid in so many words. It is started
// anew after a failure, and when a host refuses what it was sent.
//
// One request at a time is authorized: containerd v2.4.2 reads the expiry of a
// token while another request writes it. Waiting is short, as a token request
// has its own time limit.
type authorizer struct {
	fresh func() docker.Authorizer

	mu      sync.Mutex
	current docker.Authorizer // nil: nothing is known yet
}

// Authorize adds what the host is known to want: nothing before its first 401.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request) error {
	return a.with(func(current docker.Authorizer) error { return current.Authorize(ctx, req) })
}

// AddResponses learns from a 401 what the host wants.
func (a *authorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	refused := len(responses) == 1 && responses[0].Request.Header.Get("Authorization") != ""
	if refused {
		a.forget()
	}
	return a.with(func(current docker.Authorizer) error { return current.AddResponses(ctx, responses) })
}

func (a *authorizer) with(do func(docker.Authorizer) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil {
		a.current = a.fresh()
	}
	err := do(a.current)
	if err != nil {
		a.current = nil
	}
	return err
}

func (a *authorizer) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = nil
}

var errPlainRealm = errors.New("realm with plain http")

// tokenTransport asks token servers: never over plain http where the host
// itself is not, and with a bound on what they answer and on the time they take.
type tokenTransport struct {
	next  http.RoundTripper
	plain bool // the host itself is plain http, and has no credentials
	net   *network
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !t.plain {
		return nil, errors.Join(errPlainRealm, closeBody(req))
	}
	t.net.counters.tokens.Add(1)
	ctx, cancel := context.WithTimeout(req.Context(), exchangeTimeout)
	defer cancel()
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	data, err := readAtMost(resp.Body, maxToken)
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// closeBody is a RoundTripper's duty where it sends nothing.
func closeBody(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	return req.Body.Close()
}
