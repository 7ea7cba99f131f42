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

func TestReachOfAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]reach{
		"93.184.216.34": reachPublic, "2606:2800:220:1::1": reachPublic, "172.32.0.1": reachPublic, "64:ff9b::5db8:d822": reachPublic,
		"10.1.2.3": reachPrivate, "172.16.0.1": reachPrivate, "192.168.1.1": reachPrivate, "fd00::1": reachPrivate,
		"100.64.0.1": reachPrivate, "198.18.0.1": reachPrivate, "fec0::1": reachPrivate, "::ffff:10.0.0.1": reachPrivate,
		"169.254.169.254": reachLinkLocal, "fe80::1": reachLinkLocal, "fe80::1%eth0": reachLinkLocal, "::ffff:169.254.169.254": reachLinkLocal,
		"224.0.0.1": reachLinkLocal, "ff02::1": reachLinkLocal, "64:ff9b::a9fe:a9fe": reachLinkLocal,
		"127.0.0.1": reachLoopback, "127.8.8.8": reachLoopback, "::1": reachLoopback, "0.0.0.0": reachLoopback, "0.1.2.3": reachLoopback, "::": reachLoopback,
		"64:ff9b::7f00:1": reachLoopback, "192.0.0.192": reachPrivate, "64:ff9b:1::a9fe:a9fe": reachPrivate,
	} {
		assert.Equal(t, want, reachOf(netip.MustParseAddr(text)), text)
	}
	assert.Equal(t, reachLoopback, reachOf(addressOf("pipe")), "what nobody knows is trusted least")
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
