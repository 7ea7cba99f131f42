// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is a connection to an address.
type at struct {
	net.Conn

	address string
}

func (a at) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.address)) }
func (a at) Close() error         { return nil }

// A name that leads inside is no way around the refusal of private addresses; a registry inside may redirect inside.
func TestRedirectsToNamesThatLeadInside(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{
		"registry.example.com:443": "192.0.2.1:443", "cdn.example.com:443": "192.0.2.2:443", "inside.example.com:443": "10.0.0.5:443",
		"loop.example.com:443": "[::1]:443", "own.example.com:443": "10.0.0.7:443",
		"cloud.example.com:443": "169.254.169.254:443", "nat64.example.com:443": "[64:ff9b::a9fe:a9fe]:443",
		"shared.example.com:443": "100.64.0.1:443", "zero.example.com:443": "0.1.2.3:443", "group.example.com:443": "224.0.0.1:443",
	}
	for _, c := range []struct {
		from, to string
		follows  bool
	}{
		{"registry.example.com", "cdn.example.com", true},
		{"registry.example.com", "inside.example.com", false},
		{"registry.example.com", "loop.example.com", false},
		{"own.example.com", "inside.example.com", true},
		{"own.example.com", "cdn.example.com", true},
		{"own.example.com", "loop.example.com", false},
		{"own.example.com", "cloud.example.com", false},
		{"registry.example.com", "nat64.example.com", false},
		{"registry.example.com", "shared.example.com", false},
		{"registry.example.com", "zero.example.com", false},
		{"registry.example.com", "group.example.com", false},
		{"never.asked.example.com", "inside.example.com", false},
	} {
		d := &dialer{dial: func(_ context.Context, _, address string) (net.Conn, error) { return at{address: hosts[address]}, nil }}
		if hosts[c.from+":443"] != "" {
			_, err := d.connect(t.Context(), "tcp", c.from+":443")
			require.NoError(t, err)
		}
		first, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.from, http.NoBody)
		require.NoError(t, err)
		next, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.to, http.NoBody)
		require.NoError(t, err)
		require.NoError(t, checkRedirect(next, []*http.Request{first}))
		_, err = d.connect(next.Context(), "tcp", c.to+":443")
		if c.follows {
			assert.NoError(t, err, c)
		} else {
			assert.ErrorIs(t, err, errRedirect, c)
		}
	}
}
