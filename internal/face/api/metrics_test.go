// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	numbers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	for title, c := range map[string]struct {
		handler http.Handler
		method  string
		status  int
		body    string
	}{
		"a scrape":  {numbers, http.MethodGet, http.StatusOK, "up 1\n"},
		"a push":    {numbers, http.MethodPost, http.StatusMethodNotAllowed, "Method Not Allowed\n"},
		"not there": {nil, http.MethodGet, http.StatusNotFound, "404 page not found\n"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s")
			s, err := Listen(t.Context(), path, true, &daemon{}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			s.Metrics(c.handler)
			ended := make(chan error, 1)
			go func() { ended <- s.Serve() }()
			client := http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", path)
				},
			}}
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost/metrics", nil)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, c.status, resp.StatusCode)
			assert.Equal(t, c.body, string(body))
			require.NoError(t, s.Close())
			require.NoError(t, <-ended)
		})
	}
}
