// SPDX-License-Identifier: Apache-2.0

package sent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/sent"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	handled := make(chan struct{}, 8)
	handle := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		handled <- struct{}{}
		panic(http.ErrAbortHandler) // the answer is lost
	})
	plain, secure := httptest.NewServer(handle), httptest.NewUnstartedServer(handle)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden) // a proxy that does not connect
	}))
	t.Cleanup(refusing.Close)
	proxy, err := url.Parse(refusing.URL)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	for title, c := range map[string]struct {
		url       string
		transport *http.Transport
		want      bool
	}{
		"the answer is lost":          {plain.URL, &http.Transport{}, true},
		"nothing listens":             {"http://127.0.0.1:1", &http.Transport{}, false},
		"the certificate is unknown":  {secure.URL, &http.Transport{}, false},
		"TLS is spoken to plain HTTP": {"https" + plain.URL[len("http"):], &http.Transport{}, false},
		"the proxy refuses":           {secure.URL, &http.Transport{Proxy: http.ProxyURL(proxy)}, false},
		"the name is unknown": {plain.URL, &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "lock.example.com", IsNotFound: true}
			},
		}, false},
		"the time ends before the connection": {plain.URL, &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				end()
				return nil, errors.New("too late")
			},
		}, false},
	} {
		c.transport.DisableKeepAlives = true
		ctx, maybeSent := sent.Watch(ended)
		if title != "the time ends before the connection" {
			ctx, maybeSent = sent.Watch(t.Context())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, nil)
		require.NoError(t, err, title)
		resp, err := c.transport.RoundTrip(req)
		if !assert.Error(t, err, title) {
			require.NoError(t, resp.Body.Close())
		}
		assert.Equal(t, c.want, maybeSent(), title)
	}
	assert.Len(t, handled, 1, "only one request reached a server")
}

func TestASecretThatWasSentIsNotSaid(t *testing.T) {
	t.Parallel()
	form := url.Values{"password": {"of form"}, "refresh_token": {"fresh"}, "service": {"shown"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://user:of%20url@host.example.com/",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Basic dXNlcjpwIHcvMSIr") // user:p w/1"+
	req.Header.Set("Proxy-Authorization", "Bearer short")
	secrets := sent.Secrets(req, nil)
	for _, echoed := range []string{
		"Basic dXNlcjpwIHcvMSIr", "dXNlcjpwIHcvMSIr", "p w/1\"+", "p+w%2F1%22%2B", "p%20w%2F1%22+", `p w/1\"+`, "cCB3LzEiKw",
		"short", "c2hvcnQ=", "fresh", "of form", "of url", "of+url", "dXNlcjpvZiB1cmw=",
	} {
		err := sent.Unsaid(fmt.Errorf("malformed answer <%s>: %w", echoed, io.EOF), secrets...)
		assert.Equal(t, "malformed answer <***>: EOF", err.Error())
		require.ErrorIs(t, err, io.EOF)
	}
	ours := errors.New("status 401 for user, shown")
	assert.Equal(t, ours, sent.Unsaid(ours, secrets...))
	require.NoError(t, sent.Unsaid(nil, "x"))
	assert.Empty(t, sent.Secrets(nil, nil))
	proxy := http.ProxyURL(&url.URL{Host: "proxy:3128", User: url.UserPassword("u", "of proxy")})
	assert.Equal(t, "proxy: *** ***", sent.UnsaidText("proxy: dTpvZiBwcm94eQ== of proxy", sent.Secrets(req, proxy)...))
}
