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

// watchInterval is how often the content store is asked: often enough for a
// bar on a terminal, too seldom to cost anything.
const watchInterval = 500 * time.Millisecond

// ingests is what the watcher needs of the content store.
type ingests interface {
	ListStatuses(ctx context.Context, filters ...string) ([]content.Status, error)
	Info(ctx context.Context, d digest.Digest) (content.Info, error)
}

// watcher reports how far a pull has come, from what the content store says
// that it has: bytes of an earlier attempt count.
type watcher struct {
	store  ingests
	report func(status.Progress)
	last   status.Progress
	there  map[digest.Digest]bool // seen whole; not asked for again

	mu    sync.Mutex
	blobs []ocispec.Descriptor
}

func newWatcher(store ingests, reference string, report func(status.Progress)) *watcher {
	return &watcher{
		store: store, report: report, there: map[digest.Digest]bool{},
		last: status.Progress{Reference: reference, Phase: "resolving"},
	}
}

// expect tells the blobs of the image, once its manifest is known.
func (w *watcher) expect(blobs []ocispec.Descriptor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blobs = blobs
}

// start reports at once and then while something changes, until stop, which
// waits for the last report.
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
				w.look(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (w *watcher) look(ctx context.Context) {
	w.mu.Lock()
	blobs := w.blobs
	w.mu.Unlock()
	if len(blobs) == 0 {
		return
	}
	statuses, err := w.store.ListStatuses(ctx)
	if err != nil {
		return // the pull itself will say what is wrong
	}
	at := offsets(statuses)
	now := w.last
	now.Done, now.Total = tally(blobs, func(blob ocispec.Descriptor) int64 {
		return w.bytes(ctx, blob, at)
	})
	now.Phase = "downloading"
	if now.Done == now.Total {
		now.Phase = "unpacking"
	}
	moved := now.Phase != w.last.Phase || now.Done != w.last.Done || now.Total != w.last.Total
	if moved && ctx.Err() == nil {
		w.last = now
		w.report(now)
	}
}

// bytes is how much of a blob is there.
func (w *watcher) bytes(ctx context.Context, blob ocispec.Descriptor, offsets map[string]int64) int64 {
	if w.there[blob.Digest] {
		return blob.Size
	}
	if offset, ok := offsets[remotes.MakeRefKey(ctx, blob)]; ok {
		return offset
	}
	if _, err := w.store.Info(ctx, blob.Digest); err != nil {
		return 0
	}
	w.there[blob.Digest] = true
	return blob.Size
}

// tally adds up what is there of the blobs. A blob that is listed twice is
// fetched once. Sizes come from a manifest that anybody may have written: a
// negative one counts as nothing, and sums stop at the largest number.
func tally(blobs []ocispec.Descriptor, bytes func(ocispec.Descriptor) int64) (done, total int64) {
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

// size is the sum of the blobs of an image that is complete.
func (c *session) size(ctx context.Context, target ocispec.Descriptor) (int64, error) {
	manifest, err := images.Manifest(ctx, c.client.ContentStore(), target, c.matcher)
	if err != nil {
		return 0, err
	}
	blobs := append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...)
	_, total := tally(blobs, func(ocispec.Descriptor) int64 { return 0 })
	return total, nil
}
