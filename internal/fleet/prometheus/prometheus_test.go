// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/census"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"", "prometheus:9090", "ftp://p", "http://", "https://p/?x=1", "https://p/#x", "http://%"} {
		_, err := New(server, "", "test")
		assert.ErrorContains(t, err, "want a URL", server)
	}
	c, err := New("https://p.example.com/prefix/", "", "test")
	require.NoError(t, err)
	assert.Equal(t, "https://p.example.com/prefix/api/v1", c.api.String())
}

const vector = `{"status": "success", "data": {"resultType": "vector", "result": [
	{"metric": {"instance": "n1"}, "value": [1795262400.1, "3"]}, {"metric": {}, "value": [1795262400, "0"]}]}`

// An answer is complete, or an error. The index of a server is as incomplete as its samples.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const found = `{"status": "success", "data": ["n1", "n2"]`
	samples := func(c *Client) (any, error) { return c.Query(t.Context(), "up") }
	values := func(c *Client) (any, error) {
		return c.Values(t.Context(), "instance", `up{job="a b"}`, time.Unix(1795262400, 0))
	}
	for name, c := range map[string]struct {
		ask        func(*Client) (any, error)
		code       int
		body, want string // want is the error; empty: none
	}{
		"an answer":        {samples, 200, vector + "}", ""},
		"with infos":       {samples, 200, vector + `, "infos": ["x"]}`, ""},
		"incomplete":       {samples, 200, vector + `, "warnings": ["a store is away"]}`, "incomplete answer: a store is away"},
		"partial":          {samples, 200, vector + `, "isPartial": true}`, "incomplete answer"},
		"whole":            {samples, 200, vector + `, "isPartial": false}`, ""},
		"a bad query":      {samples, 400, `{"status": "error", "errorType": "bad_data", "error": "parse error"}`, "parse error"},
		"it is overloaded": {samples, 503, "try later", "status 503"},
		"a login page":     {samples, 200, "<html>", "not an answer of its query API"},
		"a range":          {samples, 200, `{"status": "success", "data": {"resultType": "matrix", "result": []}}`, "not an answer of its query API"},
		"no status":        {samples, 200, `{"data": {"resultType": "vector"}}`, "not an answer of its query API"},
		"no number": {
			samples, 200, `{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "x"]}]}}`, "not a number",
		},
		"no value":      {samples, 200, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}`, "not a number"},
		"too large":     {samples, 200, strings.Repeat(" ", maxAnswer+1), "over 33554432 bytes"},
		"values":        {values, 200, found + "}", ""},
		"not all":       {values, 200, found + `, "warnings": ["a store is away"]}`, "incomplete answer: a store is away"},
		"no such API":   {values, 404, "404 page not found", "status 404"},
		"a vector":      {values, 200, vector + "}", "not an answer of its query API"},
		"no data":       {values, 200, `{"status": "success"}`, "not an answer of its query API"},
		"another value": {values, 200, `{"status": "success", "data": [1]}`, "not an answer of its query API"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				assert.Equal(t, "/p/api/v1/query", r.URL.Path)
				assert.Equal(t, "up", r.PostFormValue("query"))
			} else {
				assert.Equal(t, "/p/api/v1/label/instance/values", r.URL.Path)
				assert.Equal(t, url.Values{"match[]": {`up{job="a b"}`}, "start": {"1795262400"}}, r.URL.Query())
			}
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		client, err := New(server.URL+"/p", "", "test")
		require.NoError(t, err)
		got, err := c.ask(client)
		server.Close()
		if c.want != "" {
			require.ErrorContains(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		var want any = []string{"n1", "n2"}
		if name != "values" {
			want = []census.Sample{{Labels: map[string]string{"instance": "n1"}, Value: 3}, {Labels: map[string]string{}}}
		}
		assert.Equal(t, want, got, name)
	}
	client, err := New("http://127.0.0.1:1", "", "test")
	require.NoError(t, err)
	_, err = samples(client)
	assert.ErrorContains(t, err, "connection refused")
}

// The token is for the server that the person named, over the connection that the person named.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Fail(t, "redirected", "with %q", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(vector + "}"))
	}))
	defer plain.Close()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a-token\n"), 0o600))
	for _, code := range []int{301, 302, 303, 307, 308} {
		secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, code))
		client, err := New(secure.URL, file, "test")
		require.NoError(t, err)
		client.http.Transport = secure.Client().Transport
		_, err = client.Query(t.Context(), "up")
		require.ErrorContains(t, err, "redirected to "+plain.URL)
		_, err = client.Values(t.Context(), "instance", "up", time.Unix(0, 0))
		require.ErrorContains(t, err, "redirected to "+plain.URL)
		secure.Close()
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		_, _ = w.Write([]byte(vector + "}"))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a-token\n"), 0o600))
	withToken, err := New(server.URL, file, "test")
	require.NoError(t, err)
	_, err = withToken.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, "Bearer a-token", <-seen)

	withPassword, err := New(strings.Replace(server.URL, "://", "://u:p@", 1), "", "test")
	require.NoError(t, err)
	_, err = withPassword.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, "Basic dTpw", <-seen)

	for _, answer := range []string{`{"error": "unknown %[1]s %[2]s"}`, vector + `,"warnings":["%[1]s %[2]s"]}`} {
		echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			_, _ = fmt.Fprintf(w, answer, r.Header.Get("Authorization"), password)
		}))
		t.Cleanup(echo.Close)
		for server, tokenFile := range map[string]string{echo.URL: file, strings.Replace(echo.URL, "://", "://u:horse@", 1): ""} {
			client, err := New(server, tokenFile, "test")
			require.NoError(t, err)
			_, err = client.Query(t.Context(), "up")
			require.ErrorContains(t, err, "***")
			assert.NotContains(t, err.Error(), "a-token")
			assert.NotContains(t, err.Error(), "horse")
			assert.NotContains(t, err.Error(), "dTpob3JzZQ")
		}
	}

	require.NoError(t, os.Remove(file))
	_, err = withToken.Query(t.Context(), "up")
	assert.ErrorContains(t, err, "no such file")
}
