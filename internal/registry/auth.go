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
type authorizer struct {
	fresh func() docker.Authorizer

	mu      sync.Mutex
	current docker.Authorizer
}

func (a *authorizer) get() docker.Authorizer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil {
		a.current = a.fresh()
	}
	return a.current
}

// drop forgets was, unless another request has already replaced it.
func (a *authorizer) drop(was docker.Authorizer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == was {
		a.current = nil
	}
}

// Authorize adds what the host is known to want: nothing before its first 401.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request) error {
	current := a.get()
	err := current.Authorize(ctx, req)
	if err != nil {
		a.drop(current)
	}
	return err
}

// AddResponses learns from a 401 what the host wants.
func (a *authorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	current := a.get()
	sent := responses[len(responses)-1].Request.Header.Get("Authorization")
	if len(responses) == 1 && sent != "" {
		a.drop(current)
		current = a.get()
	}
	err := current.AddResponses(ctx, responses)
	if err != nil {
		a.drop(current)
	}
	return err
}

var errPlainRealm = errors.New("realm with plain http")

// tokenTransport asks token servers: never over plain http where the host
// itself is not, and with a bound on what they answer.
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
	resp, err := t.next.RoundTrip(req)
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
