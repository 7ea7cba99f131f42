// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// cloud is a registry and its token server in memory, on the clock of a synctest bubble.
type cloud struct {
	expires int                      // lifetime of its tokens, in seconds
	knows   func(*http.Request) bool // reports whether a token request has a valid login
	given   int
	asked   []string
}

func (c *cloud) wrap(http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{digestHeader: {testDigest}}, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
		body := ""
		switch {
		case req.URL.Path == "/auth":
			c.asked = append(c.asked, req.Method)
			if !c.knows(req) {
				resp.StatusCode = http.StatusUnauthorized
				break
			}
			c.given++
			body = fmt.Sprintf(`{"token":"of-cloud-%[1]d","access_token":"of-cloud-%[1]d","expires_in":%[2]d}`, c.given, c.expires)
		case c.given == 0 || req.Header.Get("Authorization") != fmt.Sprintf("Bearer of-cloud-%d", c.given):
			resp.StatusCode = http.StatusUnauthorized
			resp.Header.Set("WWW-Authenticate", `Bearer realm="https://registry.suse.com/auth",service="SUSE"`)
		}
		resp.Body = io.NopCloser(strings.NewReader(body))
		return resp, nil
	})
}

var suse = release.Reference{Repository: "registry.suse.com/app", Tag: "1"}

func TestTokenIsUsedUntilItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{expires: 300, knows: func(*http.Request) bool { return true }}
		r, _ := newRegistry(t, t.TempDir(), withCredentials, func(o *Options) { o.Wrap = c.wrap })
		poll := func(want int) {
			t.Helper()
			_, err := r.Resolve(t.Context(), suse)
			require.NoError(t, err)
			assert.Equal(t, want, c.given)
		}
		poll(1)
		<-time.After(299 * time.Second)
		poll(1)
		before := r.Counts().Requests
		<-time.After(2 * time.Second)
		poll(2)
		assert.Equal(t, uint64(2), r.Counts().Requests-before, "renewed before it is refused: a token, a HEAD")
	})
}

// A node whose registration has ended still gets public images.
func TestRefusedSCCLoginIsOmitted(t *testing.T) {
	t.Parallel()
	anonymous := func(req *http.Request) bool {
		return req.Method == http.MethodGet && req.Header.Get("Authorization") == ""
	}
	logins := []struct {
		login hosts.Login
		works bool
	}{
		{hosts.Login{User: "SCC_1", Secret: secret, Optional: true}, true},
		{hosts.Login{User: "someone", Secret: secret}, false},
	}
	for _, l := range logins {
		c := &cloud{knows: anonymous}
		r, _ := newRegistry(t, t.TempDir(), func(o *Options) {
			o.Wrap = c.wrap
			o.Credentials = func(string, string) (hosts.Login, error) { return l.login, nil }
		})
		_, err := r.Resolve(t.Context(), suse)
		if !l.works {
			require.ErrorContains(t, err, "token server: 401")
			assert.NotContains(t, err.Error(), secret)
			assert.Equal(t, []string{"POST", "GET"}, c.asked, "a login that somebody configured must work")
			continue
		}
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), suse)
		require.NoError(t, err)
		assert.Equal(t, []string{"POST", "GET", "GET"}, c.asked, "and the token without it is used again")
	}
}

// The error says why there is no login only if a login was required.
func TestProblemsOfCredentialsAreReportedIfNeeded(t *testing.T) {
	t.Parallel()
	problem := errors.New("not JSON with auths")
	broken := func(o *Options) {
		o.Credentials = func(string, string) (hosts.Login, error) { return hosts.Login{}, problem }
	}
	for _, public := range []bool{true, false} {
		c := &cloud{knows: func(*http.Request) bool { return public }}
		r, _ := newRegistry(t, t.TempDir(), broken, func(o *Options) { o.Wrap = c.wrap })
		_, err := r.Resolve(t.Context(), suse)
		if public {
			require.NoError(t, err, "the login was not needed")
			continue
		}
		require.ErrorContains(t, err, "token server: 401")
		require.ErrorContains(t, err, problem.Error())
	}
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}
