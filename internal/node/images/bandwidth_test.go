// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// zeros is a registry that sends as fast as the client reads.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
func (zeros) Close() error               { return nil }

// through reads size bytes of a layer in megabytes, as containerd's client does.
func through(ctx context.Context, t *throttle, size int64) error {
	b := &body{
		ReadCloser: zeros{}, ctx: ctx, source: &source{throttle: t, onFetched: func(int) {}},
		desc: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Size: size},
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(b, size), make([]byte, 1<<20))
	return err
}

// All pulls together keep to the limit, after the first burst, and use all of it.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{10_000, 1 << 20, 100 << 20} {
		synctest.Test(t, func(t *testing.T) {
			shared := newThrottle(limit)
			start := time.Now()
			var pulls sync.WaitGroup
			for range 3 {
				pulls.Go(func() { assert.NoError(t, through(t.Context(), shared, 10*limit)) })
			}
			pulls.Wait()
			assert.InDelta(t, 30, time.Since(start).Seconds(), 0.5, "seconds at %d", limit)
		})
	}
}

func TestNoBandwidth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, through(t.Context(), newThrottle(0), 1<<30))
		assert.Zero(t, time.Since(start))
	})
}

// A read that waits for the limit ends with its context.
func TestBandwidthWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		require.ErrorIs(t, through(ctx, newThrottle(minBurst), 1<<20), context.Canceled)
		assert.Equal(t, time.Second, time.Since(start))
	})
}
