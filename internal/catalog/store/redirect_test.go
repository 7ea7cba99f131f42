// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
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
		d := &connections{dial: func(_ context.Context, _, address string) (net.Conn, error) { return at{address: hosts[address]}, nil }}
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

// A connection that was made for a registry inside, and is kept, is no way there for another registry's redirects.
func TestAKeptConnectionIsNoWayInside(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "own.example.com" {
			asked++
			return
		}
		http.Redirect(w, r, "http://own.example.com/secret", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	at := map[string]string{"registry.example.com:80": "192.0.2.1:80", "own.example.com:80": "10.0.0.7:80", "inside.example.com:80": "10.0.0.8:80"}
	c := &connections{dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		return seen{conn, at[address]}, err
	}}
	t.Cleanup(func() {
		for _, kept := range c.kept {
			kept.CloseIdleConnections()
		}
	})
	client := &http.Client{Transport: c, CheckRedirect: checkRedirect}
	get := func(host string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(r)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return err
	}
	require.NoError(t, get("own.example.com"), "as its user asks")
	require.NoError(t, get("inside.example.com"), "one inside leads to another")
	assert.Equal(t, 2, asked)
	require.ErrorIs(t, get("registry.example.com"), errRedirect)
	assert.Equal(t, 2, asked)
}

// seen is a connection to a server of the test that looks like one to an address.
type seen struct {
	net.Conn

	address string
}

func (s seen) RemoteAddr() net.Addr { return at{address: s.address}.RemoteAddr() }
