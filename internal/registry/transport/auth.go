// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/auth"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

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
