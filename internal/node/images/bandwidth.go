// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// A limited pull reads the bytes of a quarter of a second at once, within these
// bounds: smaller reads waste system calls, larger ones disturb the node's services.
const (
	minBurst = 4 << 10
	maxBurst = 1 << 20 // read size of containerd's client
)

// throttle limits the bandwidth of all pulls together; nil means no limit.
type throttle struct{ tokens *rate.Limiter }

func newThrottle(bytesPerSecond int64) *throttle {
	if bytesPerSecond <= 0 {
		return nil
	}
	burst := min(max(bytesPerSecond/4, minBurst), maxBurst)
	return &throttle{rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// clip shortens p to the maximum size of one read.
func (t *throttle) clip(p []byte) []byte {
	if t == nil {
		return p
	}
	return p[:min(len(p), t.tokens.Burst())]
}

// wait blocks until the n bytes just read are within the limit. rate's own Wait fails
// before the deadline of ctx, with an error that does not name it.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil || n == 0 {
		return nil
	}
	delay := t.tokens.ReserveN(time.Now(), n).Delay()
	if delay == 0 {
		return nil
	}
	return wait.For(ctx, delay)
}
