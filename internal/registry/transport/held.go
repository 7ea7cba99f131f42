// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

// Held is the error for a request that was not sent, or for the answer that starts a wait.
type Held struct {
	// Host is the host[:port] that waits or failed; empty if the budget is spent, and no host is asked.
	Host   string
	Led    bool      // Host is not the asked host
	Status int       // of the host's answer; 0 if there was none
	Until  time.Time // zero: unknown
	Unsent bool
	Silent bool // the host's last failure was Silent
	Inward bool // the host's last failure was ErrInward
	text   string
	err    error // the host's last failure; nil: none, or an answer
}

// Unwrap returns the failure for which the host is not asked: a certificate that was not verified for one image is the
// reason for all images after it.
func (h *Held) Unwrap() error { return h.err }

// Error has the end of the wait, and the reason.
func (h *Held) Error() string { return h.text }

// waiting returns the error for a host that asked to wait.
func waiting(to route, s *hostState) *Held {
	return &Held{
		Host: to.host, Led: to.isLed(), Status: s.wait.Status, Until: s.wait.Until.UTC(), Unsent: true,
		text: fmt.Sprintf("asked to wait until %s (%d)", roundUp(s.wait.Until).Format(time.RFC3339), s.wait.Status),
	}
}

// failing returns the error for a host with too many consecutive failures.
func failing(to route, s *hostState) *Held {
	return &Held{
		Host: to.host, Led: to.isLed(), Status: s.status, Unsent: true, Silent: s.silent, Inward: s.inward, err: s.err,
		text: fmt.Sprintf("not asked until %s: %s", roundUp(s.open).Format(time.RFC3339), s.cause),
	}
}

// overBudget returns the error for a question without budget.
func overBudget(budget *rate.Limiter, now time.Time) *Held {
	again := roundUp(now.Add(refill(budget, 1-budget.TokensAt(now))))
	return &Held{
		Unsent: true, Until: again,
		text: fmt.Sprintf("budget of %d requests an hour is used up until %s", budget.Burst(), again.Format(time.RFC3339)),
	}
}

// roundUp returns a time for people, never before the exact time.
func roundUp(t time.Time) time.Time {
	t = t.UTC()
	if second := t.Truncate(time.Second); !second.Equal(t) {
		return second.Add(time.Second)
	}
	return t
}

// RetryAt parses Retry-After. It is zero if there is none, or if it is invalid.
func RetryAt(h http.Header, now time.Time) time.Time {
	return distspec.RetryAfter(h.Get("Retry-After"), now, maxRetryAfter)
}
