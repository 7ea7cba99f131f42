// SPDX-License-Identifier: Apache-2.0

package sent_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	plain, secure, closed := httptest.NewServer(handle), httptest.NewUnstartedServer(handle), httptest.NewServer(handle)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	closed.Close()
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
		"nothing listens":             {closed.URL, &http.Transport{}, false},
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
