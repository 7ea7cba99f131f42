// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A proxy resolves names itself, so names are allowed.
func TestNamesLeadThroughAProxy(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"blobs.example.com", "0x.example.com", "1.2.3.4.example.com.", "localhost.example.com", "xn--p1ai", "7f"} {
		require.NoError(t, route{to, &askedHost{name: "a"}}.checkProxied(&url.URL{Host: to}), to)
	}
}

// The allowed targets depend on the asked host's address: only outwards, never nearer to the node.
func TestHostLeadsOnlyOutwards(t *testing.T) {
	t.Parallel()
	addresses := []string{"93.184.216.34", "10.0.0.9", "169.254.169.254", "127.0.0.1"}
	for from := range addresses {
		for to := range addresses {
			s := &sending{to: route{"a", &askedHost{name: "a", named: map[string]bool{"named": true}}}}
			require.NoError(t, s.connected(&net.TCPAddr{IP: net.ParseIP(addresses[from]), Port: 1}))
			target := netip.MustParseAddr(addresses[to])
			assert.NoError(t, route{"a", s.to.asked}.check(target), "itself")
			assert.NoError(t, route{"named", s.to.asked}.check(target))
			if to <= from {
				assert.NoError(t, route{"b", s.to.asked}.check(target))
			} else {
				assert.ErrorIs(t, route{"b", s.to.asked}.check(target), ErrInward)
			}
		}
	}
}

// A configured token server may be at any address.
func TestTokenServerMayBeInward(t *testing.T) {
	t.Parallel()
	c := New(Options{TokenServers: map[string]string{"mirror.example.com": "tokens.example.com:443"}})
	asked := authorized(t, c, "https://mirror.example.com").Client.Transport.(*follower).asked
	require.NoError(t, route{"tokens.example.com", asked}.check(netip.MustParseAddr("127.0.0.1")))
	require.ErrorIs(t, route{"other.example.com", asked}.check(netip.MustParseAddr("127.0.0.1")), ErrInward)
}
