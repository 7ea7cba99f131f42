// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// A CI job has its login in a variable, and needs no file.
func TestLoginOfTheEnvironment(t *testing.T) {
	user := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ = r.BasicAuth(); user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"tags":["1"]}`))
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	tags := func(config string) error {
		t.Setenv("DOCKER_AUTH_CONFIG", config)
		c, err := store.New(store.Options{UserAgent: "test"})
		require.NoError(t, err)
		_, err = c.Tags(t.Context(), host+"/a/b")
		return err
	}
	t.Setenv("HOME", t.TempDir())
	require.NoError(t, tags(`{"auths":{"`+host+`":{"auth":"Y2k6czNjcmV0"}}}`))
	assert.Equal(t, "ci", user)
	require.NoError(t, tags(`{"auths":{"`+host+`":{"auth":"Y2k6czNjcmV0"},"`+host+`/a/b":{"username":"b","password":"x"}}}`))
	assert.Equal(t, "b", user, "the repository's own login comes first")
	require.ErrorContains(t, tags(`{"auths":{}}`), "401")
	require.ErrorContains(t, tags(`not JSON`), "DOCKER_AUTH_CONFIG: ")
}
