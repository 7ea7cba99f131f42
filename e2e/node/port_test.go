// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
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

// TestAddressesWhileProgramsStart starts programs all the time. Until its exec, such a program has a copy of each open
// file of the test, also of a listener that the test has closed: its address would still be in use.
func TestAddressesWhileProgramsStart(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Registry: node.InProcess})
	ctx, cancel := context.WithCancel(t.Context())
	var starters sync.WaitGroup
	defer starters.Wait()
	defer cancel()
	for range 8 {
		starters.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	for range 300 {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", story.Address(node.FreePort(t)))
		require.NoError(t, err, "a free port")
		require.NoError(t, l.Close())
		n.Registry.Down()
		n.Registry.Up() // at the same address
	}
}
