// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeyedLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed()
		require.NoError(t, k.Lock(t.Context(), "a"))
		require.NoError(t, k.Lock(t.Context(), "b"), "another key")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- k.Lock(ctx, "a") }()
		go func() { got <- k.Lock(t.Context(), "a") }()
		synctest.Wait()
		assert.Empty(t, got, "it is taken")
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		k.Unlock("a")
		require.NoError(t, <-got)
		k.Unlock("a")
		k.Unlock("b")
		assert.Empty(t, k.locks, "kept for ever")
	})
}
