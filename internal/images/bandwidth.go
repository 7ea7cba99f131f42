// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// A limited pull reads a quarter of a second's bytes at once, within these
// bounds: less costs a system call for little, more comes in gusts that the
// node's services feel.
const (
	minGust = 4 << 10
	maxGust = 1 << 20 // what containerd's client reads at once
)

// throttle shares a bandwidth among all pulls; nil: there is no limit.
type throttle struct{ tokens *rate.Limiter }

func newThrottle(bytesPerSecond int64) *throttle {
	if bytesPerSecond <= 0 {
		return nil
	}
	gust := min(max(bytesPerSecond/4, minGust), maxGust)
	return &throttle{rate.NewLimiter(rate.Limit(bytesPerSecond), int(gust))}
}

// most is how much may be read at once into p.
func (t *throttle) most(p []byte) []byte {
	if t == nil {
		return p
	}
	return p[:min(len(p), t.tokens.Burst())]
}

// pay waits until n bytes that have come are within the limit. rate's own Wait
// gives up before a deadline does, with an error that says nothing of it.
func (t *throttle) pay(ctx context.Context, n int) error {
	if t == nil || n == 0 {
		return nil
	}
	wait := t.tokens.ReserveN(time.Now(), n).Delay()
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
