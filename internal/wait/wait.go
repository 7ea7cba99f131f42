// SPDX-License-Identifier: Apache-2.0

// Package wait sleeps with a context.
package wait

import (
	"context"
	"time"
)

// For sleeps for a duration. If ctx ends before, it returns the cause.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
