// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/auth"

	"github.com/kubic-project/image-update-agent/internal/keylock"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// foreignTokens are the anonymous tokens of the hosts that one host redirects to: lscr.io, say, leads to ghcr.io,
// which wants a token, and gives it to everybody. A token is asked for without a login and without a header of
// hosts.toml, and is sent to the host that wanted it, and for the repository that it is for.
//
// It is asked for after the redirect has ended in a 401, and never during one, which has a connection to a host.
type foreignTokens struct {
	client func(scheme string) *http.Client // asks the token servers of hosts with this scheme
	asking *keylock.Locks                   // one request for a token at a time

	mu     sync.Mutex
	tokens map[foreignToken]string // the header Authorization
}

// foreignToken is what a token is for.
type foreignToken struct{ origin, scopes string }

// maxForeignTokens bounds what redirects to ever other hosts leave behind.
const maxForeignTokens = 256

func newForeignTokens(client func(scheme string) *http.Client) *foreignTokens {
	return &foreignTokens{client: client, asking: keylock.New(1), tokens: map[foreignToken]string{}}
}

func keyOfToken(ctx context.Context, u *url.URL) foreignToken {
	return foreignToken{originOf(u), strings.Join(docker.GetTokenScopes(ctx, nil), " ")}
}

// authorize adds to the hop of a redirect the token that its host gave out before, if any.
func (f *foreignTokens) authorize(req *http.Request) {
	if token := f.get(keyOfToken(req.Context(), req.URL)); token != "" {
		req.Header.Set("Authorization", token)
	}
}

func (f *foreignTokens) get(key foreignToken) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens[key]
}

func (f *foreignTokens) put(key foreignToken, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tokens) >= maxForeignTokens {
		f.tokens = map[foreignToken]string{}
	}
	f.tokens[key] = token
}

// renew gets a token for what a host answered with 401. Another question may have got one since.
func (f *foreignTokens) renew(ctx context.Context, refused *http.Response) error {
	if !wantsToken(refused) {
		return foreignError(refused, "wants a login")
	}
	key := keyOfToken(ctx, refused.Request.URL)
	if err := f.asking.Lock(ctx, key.origin); err != nil {
		return &tokenError{refused.Request.URL.Host, err}
	}
	defer f.asking.Unlock(key.origin)
	if known := f.get(key); known != "" && known != refused.Request.Header.Get("Authorization") {
		return nil
	}
	token, err := f.ask(ctx, refused)
	if err != nil {
		return err
	}
	f.put(key, token)
	return nil
}

// ask asks for a token as containerd does for a host without a login.
func (f *foreignTokens) ask(ctx context.Context, refused *http.Response) (string, error) {
	asks := docker.NewDockerAuthorizer(docker.WithAuthClient(f.client(refused.Request.URL.Scheme)))
	if err := asks.AddResponses(ctx, []*http.Response{refused}); err != nil {
		return "", foreignError(refused, plain(err).Error())
	}
	carrier := &http.Request{URL: refused.Request.URL, Header: http.Header{}}
	if err := asks.Authorize(ctx, carrier); err != nil {
		return "", &tokenError{refused.Request.URL.Host, plain(err)}
	}
	return carrier.Header.Get("Authorization"), nil
}

func wantsToken(refused *http.Response) bool {
	for _, c := range auth.ParseAuthHeader(refused.Header) {
		if c.Scheme == auth.BearerAuth {
			return true
		}
	}
	return false
}

// foreignError names the host that a redirect led to.
func foreignError(refused *http.Response, why string) error {
	return fmt.Errorf("%w: %s %s", errForeign, outside.Line(refused.Request.URL.Host, maxHostName), outside.Text(why))
}

// tokenError is the error of a token for a host that did not come. It says nothing about what the token is for.
type tokenError struct {
	host string
	err  error
}

func (e *tokenError) Error() string { return outside.Line(e.host, maxHostName) + ": " + e.err.Error() }

func (e *tokenError) Unwrap() error { return e.err }
