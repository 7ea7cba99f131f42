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

	"github.com/kubic-project/image-update-agent/internal/base/keylock"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// foreignTokens are the anonymous tokens of the hosts that one host redirects to: lscr.io, for example, redirects to
// ghcr.io, which requires a token, and issues it to every client. A token is requested without a login and without
// headers of hosts.toml, and is sent only to the host that required it, for its repository.
//
// It is requested after the redirect has ended in a 401, and never during one, which holds a connection.
type foreignTokens struct {
	client func(scheme string) *http.Client // returns the client for token servers of hosts with this scheme
	asking *keylock.Locks                   // one token request at a time

	mu     sync.Mutex
	tokens map[foreignToken]string // the header Authorization
}

// foreignToken is the purpose of a token.
type foreignToken struct{ origin, scopes string }

// maxForeignTokens limits the tokens left by redirects to ever new hosts.
const maxForeignTokens = 256

func newForeignTokens(client func(scheme string) *http.Client) *foreignTokens {
	return &foreignTokens{client: client, asking: keylock.New(1), tokens: map[foreignToken]string{}}
}

func keyOfToken(ctx context.Context, u *url.URL) foreignToken {
	return foreignToken{originOf(u), strings.Join(docker.GetTokenScopes(ctx, nil), " ")}
}

// authorize adds to the hop of a redirect the earlier token of its host, if any.
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

// renew gets a token after a 401 of a host. Another question may have got one since.
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

// ask requests a token as containerd does for a host without a login.
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

// foreignError names the target of the redirect.
func foreignError(refused *http.Response, why string) error {
	return fmt.Errorf("%w: %s %s", errForeign, outside.Line(refused.Request.URL.Host, maxHostName), outside.Text(why))
}

// tokenError is the error of a token request. It says nothing about the requested object.
type tokenError struct {
	host string
	err  error
}

func (e *tokenError) Error() string { return outside.Line(e.host, maxHostName) + ": " + e.err.Error() }

func (e *tokenError) Unwrap() error { return e.err }
