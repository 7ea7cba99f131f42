// SPDX-License-Identifier: Apache-2.0

package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOneHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(1)
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
		assert.Empty(t, k.byKey, "kept for ever")
	})
}

// A caller that stops waiting takes no slot.
func TestSeveralHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(2)
		require.NoError(t, k.Lock(t.Context(), "a"))
		require.NoError(t, k.Lock(t.Context(), "a"))
		cause := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		require.ErrorIs(t, k.Lock(ctx, "a"), cause)
		third := make(chan error, 1)
		go func() { third <- k.Lock(t.Context(), "a") }()
		synctest.Wait()
		assert.Empty(t, third)
		k.Unlock("a")
		require.NoError(t, <-third)
		k.Unlock("a")
		k.Unlock("a")
		assert.Empty(t, k.byKey)
	})
}
