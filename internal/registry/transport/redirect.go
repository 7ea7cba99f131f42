// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/reach"
)

// following returns a client for answers of asked, which follows redirects by the agent's rules. own are the host's
// headers of hosts.toml; led are the tokens for other hosts, nil for none.
func following(next http.RoundTripper, own http.Header, asked *askedHost, led *foreignTokens) *http.Client {
	return &http.Client{Transport: &follower{http.Client{Transport: next, CheckRedirect: redirects(own, led)}, asked}}
}

// follower follows redirects below the HTTP client, which so does not see their targets: net/http puts the URL of a
// request into its errors, and URLs of blob stores contain their signature.
type follower struct {
	client http.Client
	asked  *askedHost
}

func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.client.Do(req.WithContext(context.WithValue(req.Context(), askedKey{}, f.asked)))
	if err != nil {
		return nil, quotable(plain(err))
	}
	if resp.Request.Response != nil {
		shown, u := *resp.Request, *resp.Request.URL
		u.RawQuery, u.User = "", nil
		shown.URL = &u
		resp.Request = &shown
	}
	return resp, nil
}

// Unfollowed is the error of a redirect that containerd follows and the agent does not.
type Unfollowed string

func (u Unfollowed) Error() string { return "redirected " + string(u) }

// The errors of redirects that containerd does not follow either: it asks the next host.
var (
	errNoLocation = errors.New("redirected to an invalid URL")
	errRedirects  = fmt.Errorf("redirected more than %d times", maxRedirects)
)

// quotable removes header values quoted by net/http from an error: the query or the user of a Location may be secret.
func quotable(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "failed to parse Location header"):
		return errNoLocation
	case strings.Contains(text, "malformed MIME header"):
		return errors.New("malformed header")
	default: // it may quote a status line, or all names of a certificate
		return outside.Error(err)
	}
}

// redirects follows as many redirects as containerd does, but never from https to http, and sends no possible secrets
// to another host. Go itself would keep Authorization for a subdomain, and any other header for any host.
func redirects(own http.Header, led *foreignTokens) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errRedirects
		}
		if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return Unfollowed("from https to http")
		}
		if !SameOrigin(via[0].URL, req.URL) {
			withoutSecrets(req.Header, own)
			if led != nil {
				led.authorize(req)
			}
		}
		return nil
	}
}

// hostKey returns the host[:port] of a URL in canonical form.
func hostKey(u *url.URL) string {
	standard := ":443"
	if u.Scheme == "http" {
		standard = ":80"
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), ":"), standard)
}

// originOf returns the scheme, host and port of a URL in canonical form.
func originOf(u *url.URL) string { return u.Scheme + "://" + hostKey(u) }

// isLedAway reports whether an answer came from another origin than the asked one.
func isLedAway(resp *http.Response) bool {
	first := resp.Request
	for first.Response != nil {
		first = first.Response.Request
	}
	return !SameOrigin(first.URL, resp.Request.URL)
}

// SameOrigin compares scheme, host and port.
func SameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && hostKey(a) == hostKey(b) }

// askedHost is a host named by hosts.toml or a namespace, with its state for the requests that its answers lead to:
// redirects, and realms of tokens.
type askedHost struct {
	name  string          // by hostKey
	named map[string]bool // by hostKey: other hosts in the configuration, at any address
	reach atomic.Int32    // of its last address; unknown behind a proxy
}

type askedKey struct{}

// route is the host of a request, and the host that was asked first.
type route struct {
	host  string     // by hostKey
	asked *askedHost // nil: the same
}

func routeOf(req *http.Request) route {
	asked, _ := req.Context().Value(askedKey{}).(*askedHost)
	return route{hostKey(req.URL), asked}
}

// isLed reports whether an answer of the asked host chose the host of the request.
func (r route) isLed() bool { return r.asked != nil && r.asked.name != r.host }

// account returns the name under which failures count: never only that of a redirect's target.
func (r route) account() string {
	if r.isLed() {
		return r.asked.name + " > " + r.host
	}
	return r.host
}

// ErrInward ends a request that an answer led towards the node.
var ErrInward = errors.New("a redirect or a token server may be there only if hosts.toml names the host")

// inwardError is a request that was not sent.
type inwardError struct {
	host  string
	reach reach.Reach
}

func (e *inwardError) Error() string {
	return fmt.Sprintf("%s has %s address: %s", outside.Line(e.host, maxHostName), e.reach, ErrInward)
}
func (e *inwardError) Unwrap() error { return ErrInward }

// check rejects an address that is nearer to the node than that of the asked host. A mirror on a private address may
// lead to a store on another one; a public host may not, and only the node itself may lead to its loopback addresses.
func (r route) check(address netip.Addr) error {
	at := reach.Of(address)
	if !r.isLed() || at <= reach.Reach(r.asked.reach.Load()) || r.asked.named[r.host] {
		return nil
	}
	return &inwardError{r.host, at}
}

// checkLiteral checks a host that is written as an address: with a proxy, no dialer here would connect to it.
func (r route) checkLiteral(u *url.URL) error {
	if address, err := netip.ParseAddr(u.Hostname()); err == nil {
		return r.check(address)
	}
	return nil
}

// checkProxied checks a name that a proxy will resolve. If it is not a DNS name, the proxy could parse it as an
// address. Such a name is trusted least.
func (r route) checkProxied(u *url.URL) error {
	if !reach.IsDNSName(u.Hostname()) {
		return r.check(netip.Addr{})
	}
	return nil
}

// checkDial is the ControlContext of the dialer for hosts that others led to: it checks the resolved address before
// anything is sent.
func checkDial(ctx context.Context, _, address string, _ syscall.RawConn) error {
	s, ok := ctx.Value(sendingKey{}).(*sending)
	if !ok || s.proxied {
		return nil
	}
	return s.to.check(reach.Address(address))
}

// ledDialer has containerd's timeouts. A dial_timeout of hosts.toml applies only to the asked host.
var ledDialer = net.Dialer{
	Timeout: dialTimeout, KeepAlive: 30 * time.Second, FallbackDelay: 300 * time.Millisecond, ControlContext: checkDial,
}

// connected checks the connection for a request, a new one or a reused one.
func (s *sending) connected(remote net.Addr) error {
	address := reach.Address(remote.String())
	switch {
	case s.proxied:
		return nil
	case s.to.isLed():
		return s.to.check(address)
	case s.to.asked != nil:
		s.to.asked.reach.Store(int32(reach.Of(address)))
	}
	return nil
}
