// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// held is a request that was not sent, or the very answer after which none is.
// It is an error, and on purpose none that containerd's resolver tries again:
// it unwraps to nothing and has no Timeout.
type held struct {
	host   string    // host[:port] of the request, a token server's too; empty: not the host's doing
	status int       // of the host's answer; 0: it gave none
	until  time.Time // zero: nobody said
	unsent bool
	text   string
}

func (h *held) Error() string { return h.text }

func waiting(host string, m *manner) *held {
	return &held{
		host: host, status: m.wait.Status, until: m.wait.Until.UTC(), unsent: true,
		text: fmt.Sprintf("asked to wait until %s (%d)", whole(m.wait.Until), m.wait.Status),
	}
}

func resting(host string, m *manner) *held {
	return &held{
		host: host, status: m.status, unsent: true,
		text: fmt.Sprintf("left alone until %s: %s", whole(m.open), m.cause),
	}
}

// whole is a time for people, never before the time itself.
func whole(t time.Time) string { return ceil(t).Format(time.RFC3339) }

func ceil(t time.Time) time.Time {
	t = t.UTC()
	if second := t.Truncate(time.Second); !second.Equal(t) {
		return second.Add(time.Second)
	}
	return t
}

// kind is what a request is for.
type kind int

// The kinds; the zero value is the question of a poll.
const (
	kindQuestion kind = iota
	kindToken
	kindPull
)

type kindKey struct{}

func withKind(ctx context.Context, k kind) context.Context {
	return context.WithValue(ctx, kindKey{}, k)
}

func kindOf(ctx context.Context) kind {
	k, _ := ctx.Value(kindKey{}).(kind)
	return k
}

type questionKey struct{}

// asking begins a question: its first request may be refused for the budget.
// What it needs then (a token, the hop of a redirect) is not: the question would
// have been for nothing.
func asking(ctx context.Context) context.Context {
	if kindOf(ctx) == kindPull {
		return ctx
	}
	return context.WithValue(ctx, questionKey{}, new(atomic.Bool))
}

// isFirst is true before the first request of a question.
func isFirst(ctx context.Context) bool {
	begun, ok := ctx.Value(questionKey{}).(*atomic.Bool)
	return ok && !begun.Load()
}

func asked(ctx context.Context) {
	if begun, ok := ctx.Value(questionKey{}).(*atomic.Bool); ok {
		begun.Store(true)
	}
}
