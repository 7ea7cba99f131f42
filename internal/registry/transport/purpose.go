// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync/atomic"
)

// kind is the purpose of a request.
type kind int

// The kinds; the zero value is a question.
const (
	kindQuestion kind = iota
	kindToken
	kindPull
)

// purpose says what a request belongs to.
type purpose struct {
	kind kind
	// begun is set when the first request of a question is admitted: only that one can be refused for the budget. Its
	// further requests (a token, the hop of a redirect) are not, because otherwise the first one would be wasted. nil:
	// no request is refused.
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

// ForPull marks the requests of a pull: they are counted as such and never wait for the budget.
func ForPull(ctx context.Context) context.Context { return with(ctx, purpose{kind: kindPull}) }

// forQuestion begins a question, unless ctx is a pull's.
func forQuestion(ctx context.Context) context.Context {
	if purposeOf(ctx).kind == kindPull {
		return ctx
	}
	return with(ctx, purpose{begun: new(atomic.Bool)})
}

// forToken marks the token request of a question or pull.
func forToken(ctx context.Context) context.Context {
	p := purposeOf(ctx)
	p.kind = kindToken
	return with(ctx, p)
}
