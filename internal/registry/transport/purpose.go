// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync/atomic"
)

// kind is what a request is for.
type kind int

// The kinds; the zero value is a question.
const (
	kindQuestion kind = iota
	kindToken
	kindPull
)

// purpose is what a request belongs to.
type purpose struct {
	kind kind
	// begun is set when the first request of a question was admitted: only that one is
	// refused for the budget. What the question needs then (a token, the hop of a
	// redirect) is not, or the question would have been for nothing. nil: no request is
	// refused.
	begun *atomic.Bool
}

type purposeKey struct{}

func purposeOf(ctx context.Context) purpose {
	p, _ := ctx.Value(purposeKey{}).(purpose)
	return p
}

func with(ctx context.Context, p purpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, p)
}

// ForPull marks the requests of a pull: they are counted as such and never wait for the
// budget.
func ForPull(ctx context.Context) context.Context { return with(ctx, purpose{kind: kindPull}) }

// forQuestion begins a question, unless ctx is a pull's.
func forQuestion(ctx context.Context) context.Context {
	if purposeOf(ctx).kind == kindPull {
		return ctx
	}
	return with(ctx, purpose{begun: new(atomic.Bool)})
}

// forToken marks the request for a token that a question or pull needs.
func forToken(ctx context.Context) context.Context {
	p := purposeOf(ctx)
	p.kind = kindToken
	return with(ctx, p)
}
