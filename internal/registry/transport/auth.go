// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/auth"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/kubic-project/image-update-agent/internal/base/keylock"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// authorizer adapts containerd's to a process that runs for months: containerd's keeps a failed token request forever,
// and also a token without an expiry, unless the host explicitly calls it invalid. It is recreated after a failure, and
// when a host refuses its credentials; and there is one per login, because two repositories may have different ones,
// and a login may change.
//
// Requests are authorized one at a time: containerd v2.4.2 reads the expiry of a token while another request writes it.
// The wait is short, because a token request has its own time limit.
type authorizer struct {
	home  *url.URL // scheme and host of the logins
	login func(host, repository string) (hosts.Login, error)
	may   func(realm *url.URL) bool
	fresh func(hosts.Login) docker.Authorizer
	led   *foreignTokens // for the hosts that home redirects to
	log   *slog.Logger

	mu       sync.Mutex
	sessions map[hosts.Login]*session
}

// session is the state for one login.
type session struct {
	current   docker.Authorizer // nil if nothing is known yet
	used      hosts.Login       // the login, or none if it must not be sent
	withheld  error             // why used is not the login
	challenge *http.Response    // the start of current
}

// maxSessions limits the sessions left by logins that change every hour.
const maxSessions = 32

var (
	errRefused     = errors.New("credentials refused")
	errForeign     = errors.New("401 from another host")
	errPlainRealm  = errors.New("realm with plain http")
	errForeignHost = errors.New("credentials are for the registry only, but its token server is on another host")
)

// Authorize adds the credentials that the host is known to require: none before its first 401, and none for another
// host, as containerd's authorizer also keeps its state by host.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	login, problem := a.find(ctx)
	s := a.session(login)
	if s.current == nil {
		return nil
	}
	err := s.current.Authorize(ctx, req)
	if err != nil && s.used.Optional && refusedByServer(err) {
		if err = s.start(ctx, a.fresh(hosts.Login{}), hosts.Login{}, s.challenge); err == nil {
			err = s.current.Authorize(ctx, req)
		}
	}
	if err == nil && s.used != (hosts.Login{}) {
		*req = *req.WithContext(context.WithValue(req.Context(), loginKey{}, true))
	}
	return s.ended(err, errors.Join(problem, s.withheld))
}

type loginKey struct{}

// IsPrivate reports whether a host answered a request with a login, or with a token obtained with one. Headers in
// hosts.toml are not a login: containerd sends them for every pod.
func IsPrivate(resp *http.Response) bool { return resp.Request.Context().Value(loginKey{}) != nil }

// showsLogin reports whether a request contains a password, or a token obtained with one. Only passwords are sent with
// POST: a token without one is requested with GET.
func showsLogin(req *http.Request) bool {
	return req.Context().Value(loginKey{}) != nil || req.Method == http.MethodPost ||
		strings.HasPrefix(strings.ToLower(req.Header.Get("Authorization")), "basic ")
}

// AddResponses learns from a 401 what the host requires. A refused token is renewed once, a password never: it would be
// refused again, and count as two failed logins. A target of home's redirect gets an anonymous token, and never a
// login.
func (a *authorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	last := responses[len(responses)-1]
	if !strings.EqualFold(last.Request.URL.Host, a.home.Host) || isLedAway(last) {
		return a.led.renew(ctx, last)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	login, problem := a.find(ctx)
	s := a.session(login)
	sent := last.Request.Header.Get("Authorization")
	if s.current != nil && strings.HasPrefix(sent, "Basic ") || sent != "" && len(responses) > 1 {
		return s.ended(errRefused, problem)
	}
	use := login
	s.withheld = nil
	if login != (hosts.Login{}) {
		if s.withheld = a.withheld(last); s.withheld != nil {
			use = hosts.Login{}
			problem = s.withheld
			a.log.WarnContext(ctx, "credentials not sent", "host", a.home.Host, "err", problem)
		}
	}
	if sent == "" && s.current != nil && s.used == use {
		return s.ended(s.current.AddResponses(ctx, responses), problem)
	}
	return s.ended(s.start(ctx, a.fresh(use), use, last), problem)
}

func (s *session) start(ctx context.Context, fresh docker.Authorizer, use hosts.Login, challenge *http.Response) error {
	s.current, s.used, s.challenge = fresh, use, challenge
	return fresh.AddResponses(ctx, []*http.Response{challenge})
}

// ended drops failed state. problem is why there was no login.
func (s *session) ended(err, problem error) error {
	if err == nil {
		return nil
	}
	s.current = nil
	if problem != nil {
		return fmt.Errorf("%w (%w)", plain(err), problem)
	}
	return err
}

// find returns the login for the request's repository, which Send names in the scope.
func (a *authorizer) find(ctx context.Context) (hosts.Login, error) {
	if a.home.Scheme != "https" {
		return hosts.Login{}, ErrPlainCredentials
	}
	if a.login == nil {
		return hosts.Login{}, nil
	}
	repository := ""
	for _, scope := range docker.GetTokenScopes(ctx, nil) {
		if rest, ok := strings.CutPrefix(scope, "repository:"); ok {
			repository = rest[:max(strings.LastIndexByte(rest, ':'), 0)]
		}
	}
	return a.login(a.home.Host, repository)
}

func (a *authorizer) session(login hosts.Login) *session {
	s, ok := a.sessions[login]
	if !ok {
		if len(a.sessions) >= maxSessions || a.sessions == nil {
			a.sessions = map[hosts.Login]*session{}
		}
		s = &session{}
		a.sessions[login] = s
	}
	return s
}

// withheld returns why a login must not answer a 401: the 401 came over plain http, or requires a token from elsewhere.
func (a *authorizer) withheld(challenge *http.Response) error {
	if challenge.Request.URL.Scheme != "https" {
		return ErrPlainCredentials
	}
	for _, c := range auth.ParseAuthHeader(challenge.Header) {
		if c.Scheme != auth.BearerAuth {
			continue
		}
		realm, err := url.Parse(c.Parameters["realm"])
		if err != nil {
			return errForeignHost
		}
		if !a.may(realm) {
			return &ForeignRealmError{Registry: challenge.Request.URL.Host, Realm: outside.Text(realm.Host)}
		}
	}
	return nil
}

// ForeignRealmError says that a registry requests its login for a token server on another host, which no setting names
// for it (credentials.tokenServers).
type ForeignRealmError struct{ Registry, Realm string }

func (e *ForeignRealmError) Error() string { return fmt.Sprintf("%v: %q", errForeignHost, e.Realm) }

func (e *ForeignRealmError) Unwrap() error { return errForeignHost }

// refusedByServer reports whether a token server refused the login.
func refusedByServer(err error) bool {
	status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err)
	return ok && status.StatusCode >= 400 && status.StatusCode < 500 && status.StatusCode != http.StatusTooManyRequests
}

// Authorize applies the agent's rules for redirects and tokens to the hosts of a namespace.
func (c *Client) Authorize(all []docker.RegistryHost) {
	named := map[string]bool{}
	for _, host := range all {
		named[keyOf(host)] = true
	}
	for i := range all {
		c.authorize(&all[i], named)
	}
}

func keyOf(host docker.RegistryHost) string {
	return hostKey(&url.URL{Scheme: host.Scheme, Host: host.Host})
}

// authorize sets the client and authorizer of a host. named are the hosts in the namespace's hosts.toml.
func (c *Client) authorize(host *docker.RegistryHost, named map[string]bool) {
	asked := &askedHost{name: keyOf(*host), named: named}
	if server := c.options.TokenServers[host.Host]; server != "" {
		asked.named = maps.Clone(named)
		asked.named[hostKey(&url.URL{Scheme: "https", Host: server})] = true
	}
	home := &url.URL{Scheme: host.Scheme, Host: host.Host}
	may := mayShow(home, c.options.TokenServers)
	header := canonical(host.Header)
	host.Header = header
	next := host.Client.Transport
	tokens := func(scheme string) *http.Client {
		return following(&tokenTransport{next, scheme == "http", may, header}, header, asked, nil)
	}
	led := newForeignTokens(tokens)
	host.Client = following(next, header, asked, led)
	fresh := func(l hosts.Login) docker.Authorizer {
		return docker.NewDockerAuthorizer(docker.WithAuthClient(tokens(host.Scheme)), docker.WithAuthHeader(header),
			docker.WithAuthCreds(func(string) (string, string, error) { return l.User, l.Secret, nil }))
	}
	host.Authorizer = &authorizer{
		home: home, login: c.options.Credentials, may: may, log: c.options.Log, fresh: fresh, led: led,
	}
}

// canonical converts header names to Go's canonical form; containerd leaves them as in hosts.toml, where a second
// "user-agent" would be sent in addition to the agent's, and an "authorization" would be overlooked.
func canonical(header http.Header) http.Header {
	if header == nil {
		return nil
	}
	named := http.Header{}
	for name, values := range header {
		for _, value := range values {
			named.Add(name, value)
		}
	}
	return named
}

// tokenServers are the known token servers of registries on other hosts, which may receive their logins.
var tokenServers = map[string]string{
	"registry-1.docker.io": "auth.docker.io",
	"registry.suse.com":    "scc.suse.com",
	"registry.gitlab.com":  "gitlab.com",
}

// mayShow returns whether logins for the host home may be sent to a realm: it is the host itself, or its token server,
// and uses TLS.
func mayShow(home *url.URL, servers map[string]string) func(*url.URL) bool {
	own := cmp.Or(servers[home.Host], tokenServers[strings.ToLower(home.Host)])
	return func(realm *url.URL) bool {
		if realm.Scheme != "https" || realm.User != nil || realm.Host == "" {
			return false
		}
		return SameOrigin(home, realm) || own != "" && SameOrigin(&url.URL{Scheme: "https", Host: own}, realm)
	}
}

// tokenTransport sends requests to token servers: never over plain http unless the host itself uses it, without secrets
// for a foreign one, and with limits for answers and time.
type tokenTransport struct {
	next  http.RoundTripper
	plain bool // the host itself uses plain http, and has no credentials
	may   func(*url.URL) bool
	own   http.Header // the host's headers of hosts.toml, which may be secret as well
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !t.plain {
		return nil, errors.Join(errPlainRealm, closeBody(req))
	}
	ctx, cancel := context.WithTimeout(forToken(req.Context()), askTimeout)
	defer cancel()
	req = req.Clone(ctx)
	if !t.may(req.URL) {
		// A POST has the password in its body, which a redirect with 307 or 308 sends again.
		if req.Method == http.MethodPost {
			return nil, errors.Join(errForeignHost, closeBody(req))
		}
		withoutSecrets(req.Header, t.own)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	data, err := readBody(resp, maxToken)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// withoutSecrets removes from a header what another host must not see: possible secrets, the host's headers of
// hosts.toml, and the Referer, because redirects are signed in their query.
func withoutSecrets(header, own http.Header) {
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		header.Del(name)
	}
	for name := range own {
		delete(header, name)
		header.Del(name)
	}
}

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
