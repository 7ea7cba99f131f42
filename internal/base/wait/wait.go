// SPDX-License-Identifier: Apache-2.0

// Package wait sleeps and reads with a context.
package wait

import (
	"context"
	"time"
)

// For sleeps for a duration. If ctx ends first, it returns the cause.
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

// Result returns the results of do. If ctx ends first, do goes on alone: it reads a terminal, a pipe or a FIFO, which
// nothing can interrupt.
func Result[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
