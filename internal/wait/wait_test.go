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

	"github.com/kubic-project/image-update-agent/internal/wait"
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
