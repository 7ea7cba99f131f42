// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRealmOnAnotherHostIsNamed checks the error from which doctor derives its remedy.
func TestRealmOnAnotherHostIsNamed(t *testing.T) {
	t.Parallel()
	home := &url.URL{Scheme: "https", Host: "registry.example.com"}
	challenge := &http.Response{
		Header:  http.Header{"Www-Authenticate": {`Bearer realm="https://gitlab.example.com/jwt/auth",service="container_registry"`}},
		Request: &http.Request{URL: home},
	}
	err := (&authorizer{may: mayShow(home, nil)}).withheld(challenge)
	require.ErrorIs(t, err, errForeignHost)
	foreign, is := errors.AsType[*ForeignRealmError](err)
	require.True(t, is, "%v", err)
	assert.Equal(t, ForeignRealmError{Registry: "registry.example.com", Realm: "gitlab.example.com"}, *foreign)
	listed := &authorizer{may: mayShow(home, map[string]string{home.Host: "gitlab.example.com"})}
	require.NoError(t, listed.withheld(challenge))
}
