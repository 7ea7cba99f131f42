// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPositionIn(t *testing.T) {
	t.Parallel()
	const mirror, upstream = "https://mirror.example.com", "https://registry.suse.com"
	assert.Equal(t, Off, PositionIn(nil))
	assert.Equal(t, Off, PositionIn([]string{mirror, upstream, "https://" + Address}))
	assert.Equal(t, Gate, PositionIn([]string{URL, mirror, upstream}))
	assert.Equal(t, Fallback, PositionIn([]string{mirror, URL, upstream}), "the mirror is asked before it")
	assert.Equal(t, Fallback, PositionIn([]string{mirror, upstream, URL}))
}

func TestIs(t *testing.T) {
	t.Parallel()
	assert.True(t, Is("http", Address))
	assert.False(t, Is("https", Address))
	assert.False(t, Is("http", "127.0.0.1"))
	assert.False(t, Is("http", "registry.suse.com"))
}

// Any user may listen on a port from 1024, and bindresvport(3) chooses ports from 512.
func TestAddressIsReservedForRoot(t *testing.T) {
	t.Parallel()
	address, err := netip.ParseAddrPort(Address)
	require.NoError(t, err)
	assert.True(t, address.Addr().IsLoopback())
	assert.Less(t, address.Port(), uint16(512))
}
