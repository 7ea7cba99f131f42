// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKnownTokenServers(t *testing.T) {
	t.Parallel()
	realms := []struct {
		registry, realm string
		want            bool
	}{
		{"registry-1.docker.io", "https://auth.docker.io/token", true},
		{"registry-1.docker.io", "https://auth.docker.io:443/token", true},
		{"registry-1.docker.io", "https://auth.docker.io.evil.org/token", false},
		{"registry-1.docker.io", "http://auth.docker.io/token", false},
		{"registry.suse.com", "https://registry.suse.com/auth", true},
		{"registry.suse.com", "https://REGISTRY.suse.com:443/auth", true},
		{"registry.suse.com", "https://scc.suse.com/api/registry/authorize", true},
		{"registry.suse.com", "https://registry.suse.com:8443/auth", false},
		{"registry.suse.com", "https://user@registry.suse.com/auth", false},
		{"registry.gitlab.com", "https://gitlab.com/jwt/auth", true},
		{"registry.gitlab.com", "https://gitlab.com.evil.org/jwt/auth", false},
		{"mirror:5000", "https://auth.docker.io/token", false},
		{"mirror:5000", "https://mirror:5000/token", true},
		{"mirror:5000", "https://mirror/token", false},
		{"own.example.org", "https://auth.example.org/token", true},
		{"own.example.org", "https://example.org/token", false},
		{"own.example.org", "//own.example.org/token", false},
	}
	for _, r := range realms {
		may := mayShow(parsed(t, "https://"+r.registry), map[string]string{"own.example.org": "auth.example.org"})
		assert.Equal(t, r.want, may(parsed(t, r.realm)), "%s %s", r.registry, r.realm)
	}
}

func parsed(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}
