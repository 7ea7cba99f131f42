// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/base/reach"
)

func TestReachOfAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]reach.Reach{
		"93.184.216.34": reach.Public, "2606:2800:220:1::1": reach.Public, "172.32.0.1": reach.Public, "64:ff9b::5db8:d822": reach.Public,
		"10.1.2.3": reach.Private, "172.16.0.1": reach.Private, "192.168.1.1": reach.Private, "fd00::1": reach.Private,
		"100.64.0.1": reach.Private, "198.18.0.1": reach.Private, "fec0::1": reach.Private, "::ffff:10.0.0.1": reach.Private,
		"169.254.169.254": reach.LinkLocal, "fe80::1": reach.LinkLocal, "fe80::1%eth0": reach.LinkLocal, "::ffff:169.254.169.254": reach.LinkLocal,
		"224.0.0.1": reach.LinkLocal, "ff02::1": reach.LinkLocal, "64:ff9b::a9fe:a9fe": reach.LinkLocal,
		"127.0.0.1": reach.Loopback, "127.8.8.8": reach.Loopback, "::1": reach.Loopback, "0.0.0.0": reach.Loopback, "0.1.2.3": reach.Loopback, "::": reach.Loopback,
		"64:ff9b::7f00:1": reach.Loopback, "192.0.0.192": reach.Private, "64:ff9b:1::a9fe:a9fe": reach.Private,
	} {
		assert.Equal(t, want, reach.Of(netip.MustParseAddr(text)), text)
	}
	assert.Equal(t, reach.Loopback, reach.Of(reach.Address("pipe")), "what nobody knows is trusted least")
}
