// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// TestFreePortsAreNotTakenByOthers checks that neither an outgoing connection nor another test takes a port before the
// pod listens on it: the pod would end, and its test fail at random.
func TestFreePortsAreNotTakenByOthers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	require.NoError(t, err)
	outgoing, err := strconv.Atoi(strings.Fields(string(text))[0])
	require.NoError(t, err)
	n := node.Start(t, node.Options{})
	seen := map[int]bool{}
	for range 2000 {
		port := n.FreePort()
		require.False(t, seen[port], "port %d twice", port)
		seen[port] = true
		assert.Less(t, port, outgoing)
	}
}
