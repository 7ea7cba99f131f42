// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// following makes a client for what asked answers or leads to, which follows
// redirects by our rules. own are the host's headers of hosts.toml; led are the tokens
// for other hosts, nil for none.
func following(next http.RoundTripper, own http.Header, asked *askedHost, led *foreignTokens) *http.Client {
	return &http.Client{Transport: &follower{http.Client{Transport: next, CheckRedirect: redirects(own, led)}, asked}}
}

// follower follows redirects below the client that asks, which so never learns
// where they lead to: net/http puts the URL of a request into its errors, and blob
// stores have their signature in it.
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

// Unfollowed is the error of a redirect that is not followed. containerd may have followed it.
type Unfollowed string

func (u Unfollowed) Error() string { return "redirected " + string(u) }

// quotable takes out of an error what net/http quotes there from a header: the
// query or the user of a Location may be secret.
func quotable(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "failed to parse Location header"):
		return Unfollowed("to what is no URL")
	case strings.Contains(text, "malformed MIME header"):
		return errors.New("malformed header")
	default: // it may quote a status line, or all names of a certificate
		return outside.Error(err)
	}
}

// redirects follows up to five redirects as containerd does, but never from
// https to http, and takes what may be secret along to no other host. Go itself
// would keep Authorization for a subdomain, and any other header for any host.
func redirects(own http.Header, led *foreignTokens) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return Unfollowed(fmt.Sprintf("more than %d times", maxRedirects))
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

// hostKey is the host[:port] of a URL, in one spelling only.
func hostKey(u *url.URL) string {
	standard := ":443"
	if u.Scheme == "http" {
		standard = ":80"
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), ":"), standard)
}

// originOf is the scheme, host and port of a URL, in one spelling only.
func originOf(u *url.URL) string { return u.Scheme + "://" + hostKey(u) }

// isLedAway reports that an answer came over redirects from another origin than the one that was asked.
func isLedAway(resp *http.Response) bool {
	first := resp.Request
	for first.Response != nil {
		first = first.Response.Request
	}
	return !SameOrigin(first.URL, resp.Request.URL)
}

// SameOrigin compares scheme, host and port.
func SameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && hostKey(a) == hostKey(b) }
