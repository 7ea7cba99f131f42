// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, wait.For(t.Context(), 3*time.Second))
		assert.Equal(t, 3*time.Second, time.Since(began))

		cause, began := errors.New("a person asks"), time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		require.ErrorIs(t, wait.For(ctx, time.Minute), cause)
		assert.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, wait.For(ctx, 0), cause, "it has ended before")
	})
}

func TestResult(t *testing.T) {
	t.Parallel()
	n, err := wait.Result(t.Context(), func() (int, error) { return 3, errors.ErrUnsupported })
	assert.Equal(t, 3, n)
	require.ErrorIs(t, err, errors.ErrUnsupported)

	cause, stuck := errors.New("a person asks"), make(chan struct{})
	defer close(stuck)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = wait.Result(ctx, func() (int, error) {
		cancel(cause)
		<-stuck
		return 3, nil
	})
	require.ErrorIs(t, err, cause)
}
