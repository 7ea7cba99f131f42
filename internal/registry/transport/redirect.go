// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
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
