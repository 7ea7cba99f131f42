// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// watchInterval is the time between two queries of the content store: enough for a progress bar, at negligible cost.
const watchInterval = 500 * time.Millisecond

// ingests is the part of the content store that the watcher uses.
type ingests interface {
	ListStatuses(ctx context.Context, filters ...string) ([]content.Status, error)
	Info(ctx context.Context, d digest.Digest) (content.Info, error)
}

// watcher reports the progress of a pull from the content store: bytes of an earlier
// attempt count.
type watcher struct {
	store    ingests
	report   func(status.Progress)
	last     status.Progress
	complete map[digest.Digest]bool // blobs that need no further query

	mu    sync.Mutex
	blobs []ocispec.Descriptor
}

func newWatcher(store ingests, reference string, report func(status.Progress)) *watcher {
	return &watcher{
		store: store, report: report, complete: map[digest.Digest]bool{},
		last: status.Progress{Reference: reference, Phase: status.PhaseResolving},
	}
}

// expect sets the blobs of the image, once its manifest is known.
func (w *watcher) expect(blobs []ocispec.Descriptor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blobs = blobs
}

// start reports at once, and then each change until stop is called, which waits for the last report.
func (w *watcher) start(ctx context.Context) (stop func()) {
	w.report(w.last)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.poll(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (w *watcher) poll(ctx context.Context) {
	w.mu.Lock()
	blobs := w.blobs
	w.mu.Unlock()
	if len(blobs) == 0 {
		return
	}
	partial, err := partialBlobs(ctx, w.store)
	if err != nil {
		return // the pull itself reports errors
	}
	now := w.last
	now.Done, now.Total = sumBlobs(blobs, func(blob ocispec.Descriptor) int64 {
		return w.bytes(ctx, blob, partial)
	})
	now.Phase = status.PhaseDownloading
	if now.Done == now.Total {
		now.Phase = status.PhaseUnpacking
	}
	changed := now.Phase != w.last.Phase || now.Done != w.last.Done || now.Total != w.last.Total
	if changed && ctx.Err() == nil {
		w.last = now
		w.report(now)
	}
}

// bytes returns the stored bytes of a blob.
func (w *watcher) bytes(ctx context.Context, blob ocispec.Descriptor, partial map[string]int64) int64 {
	if w.complete[blob.Digest] {
		return blob.Size
	}
	if offset, ok := partial[remotes.MakeRefKey(ctx, blob)]; ok {
		return offset
	}
	if _, err := w.store.Info(ctx, blob.Digest); err != nil {
		return 0
	}
	w.complete[blob.Digest] = true
	return blob.Size
}

// sumBlobs sums up the stored bytes of the blobs, and their sizes. A blob that is listed twice counts once, a negative
// size as 0, and sums saturate, because a manifest may have any content.
func sumBlobs(blobs []ocispec.Descriptor, bytes func(ocispec.Descriptor) int64) (done, total int64) {
	counted := map[digest.Digest]bool{}
	for _, blob := range blobs {
		if counted[blob.Digest] {
			continue
		}
		counted[blob.Digest] = true
		size := max(blob.Size, 0)
		done = add(done, min(max(bytes(blob), 0), size))
		total = add(total, size)
	}
	return done, total
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// imageSize returns the sum of the blobs of a complete image.
func (c *session) imageSize(ctx context.Context, target ocispec.Descriptor) (int64, error) {
	manifest, err := images.Manifest(ctx, c.client.ContentStore(), target, c.matcher)
	if err != nil {
		return 0, err
	}
	blobs := append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...)
	_, total := sumBlobs(blobs, func(ocispec.Descriptor) int64 { return 0 })
	return total, nil
}
