// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContainerdIsAskedOnceUntilItRestarts(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	start := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
		require.NoError(t, err)
		return l
	}
	asked, answer := 0, errors.New("starting")
	get := UntilRestart(socket, func(context.Context) (string, error) {
		asked++
		return "overlayfs", answer
	})
	first := start()
	for range 2 {
		_, err := get(t.Context())
		require.Error(t, err)
	}
	assert.Equal(t, 2, asked, "an error is not cached")
	answer = nil
	for range 3 {
		name, err := get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "overlayfs", name)
	}
	assert.Equal(t, 3, asked)
	require.NoError(t, first.Close())
	_, err := os.Stat(socket)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = get(t.Context())
	require.NoError(t, err)
	second := start()
	defer func() { _ = second.Close() }()
	_, err = get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, asked, "another socket, another containerd")
}
