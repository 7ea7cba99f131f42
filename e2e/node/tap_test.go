// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net"
	"sync"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

const versionCall = "/containerd.services.version.v1.Version/Version"

// TestTap checks that a tap forwards bytes, reports calls in order and can stop them, and refuses connections while
// containerd is away.
func TestTap(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	tap := n.Tap()
	client, err := containerd.New(n.Path(tap.Socket))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })

	var lock sync.Mutex
	var seen []node.Moment
	stop := node.Event(-1)
	tap.Watch(func(m node.Moment) bool {
		lock.Lock()
		defer lock.Unlock()
		m.Data = nil
		seen = append(seen, m)
		return m.Event != stop
	})
	for _, want := range []struct {
		stop   node.Event
		events []node.Event
	}{
		{-1, []node.Event{node.Called, node.Sent, node.Answered}},
		{node.Called, []node.Event{node.Called}},
		{node.Answered, []node.Event{node.Called, node.Sent, node.Answered}},
		{-1, []node.Event{node.Called, node.Sent, node.Answered}},
	} {
		lock.Lock()
		stop, seen = want.stop, nil
		lock.Unlock()
		_, err := client.Version(t.Context())
		assert.Equal(t, want.stop >= 0, err != nil, "%v", err)
		var moments []node.Moment
		for _, event := range want.events {
			moments = append(moments, node.Moment{Method: versionCall, Event: event})
		}
		lock.Lock()
		assert.Equal(t, moments, seen)
		lock.Unlock()
	}
	tap.Watch(nil)

	n.Containerd.Kill()
	tap.Follow()
	_, err = net.Dial("unix", n.Path(tap.Socket))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	n.Containerd.Start()
	node.Eventually(t, "containerd", node.Patience, func() error { _, err := client.Version(t.Context()); return err })
}
