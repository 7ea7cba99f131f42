// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/status"
)

func blob(text string, size int64) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString(text), Size: size}
}

func TestSumBlobsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Int64()).Draw(t, "sizes")
		names := rapid.SliceOfN(rapid.StringN(1, 1, 1), len(sizes), len(sizes)).Draw(t, "names")
		var blobs []ocispec.Descriptor
		there := map[digest.Digest]int64{}
		for i, size := range sizes {
			blobs = append(blobs, blob(names[i], size))
			there[blobs[i].Digest] = rapid.Int64().Draw(t, "there")
		}
		done, total := sumBlobs(blobs, func(b ocispec.Descriptor) int64 { return there[b.Digest] })
		assert.GreaterOrEqual(t, done, int64(0))
		assert.LessOrEqual(t, done, total)
		all, same := sumBlobs(append(blobs, blobs...), func(b ocispec.Descriptor) int64 { return b.Size })
		assert.Equal(t, total, same, "a blob that is listed twice counts once")
		assert.Equal(t, total, all)
	})
}

func TestSumBlobs(t *testing.T) {
	t.Parallel()
	blobs := []ocispec.Descriptor{blob("config", 10), blob("base", 100), blob("top", 1000), blob("base", 100)}
	there := map[digest.Digest]int64{blobs[0].Digest: 10, blobs[1].Digest: 40}
	done, total := sumBlobs(blobs, func(b ocispec.Descriptor) int64 { return there[b.Digest] })
	assert.EqualValues(t, 50, done)
	assert.EqualValues(t, 1110, total)
	_, total = sumBlobs([]ocispec.Descriptor{blob("a", math.MaxInt64), blob("b", 1)}, func(ocispec.Descriptor) int64 { return 0 })
	assert.EqualValues(t, math.MaxInt64, total)
}

// fakeStore is a content store filled by the test.
type fakeStore struct {
	mu      sync.Mutex
	offsets map[string]int64
	there   map[digest.Digest]bool
	down    bool
	asked   int
}

func (f *fakeStore) ListStatuses(context.Context, ...string) ([]content.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.down {
		return nil, errors.New("down")
	}
	var statuses []content.Status
	for ref, offset := range f.offsets {
		statuses = append(statuses, content.Status{Ref: ref, Offset: offset})
	}
	return statuses, nil
}

func (f *fakeStore) Info(_ context.Context, d digest.Digest) (content.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.there[d] {
		return content.Info{}, errdefs.ErrNotFound
	}
	return content.Info{Digest: d}, nil
}

func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, top := blob("base", 100), blob("top", 1000)
		store := &fakeStore{offsets: map[string]int64{}, there: map[digest.Digest]bool{base.Digest: true}}
		var seen []status.Progress
		at := func(phase string, done, total int64) status.Progress {
			return status.Progress{Reference: "suse.com/a:1", Phase: phase, Done: done, Total: total}
		}
		w := newWatcher(store, "suse.com/a:1", func(p status.Progress) { seen = append(seen, p) })
		stop := w.start(t.Context())
		tick := func(want ...status.Progress) {
			t.Helper()
			<-time.After(watchInterval) // the bubble's time
			synctest.Wait()
			assert.Equal(t, want, seen)
			seen = nil
		}
		tick(at("resolving", 0, 0))
		assert.Zero(t, store.asked, "asked before there is anything to ask for")
		w.expect([]ocispec.Descriptor{base, top})
		tick(at("downloading", 100, 1100))
		tick([]status.Progress(nil)...)
		store.set(func() { store.offsets["layer-"+top.Digest.String()] = 400 })
		tick(at("downloading", 500, 1100))
		store.set(func() { store.down = true })
		tick([]status.Progress(nil)...)
		store.set(func() { store.down, store.offsets, store.there[top.Digest] = false, nil, true })
		tick(at("unpacking", 1100, 1100))
		stop()
		store.set(func() { store.there[top.Digest] = false })
		tick([]status.Progress(nil)...)
	})
}

// A containerd that hangs must not delay the end of a pull.
func TestWatcherStopsWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(hungStore{}, "suse.com/a:1", func(status.Progress) {})
		w.expect([]ocispec.Descriptor{blob("base", 100)})
		stop := w.start(t.Context())
		<-time.After(watchInterval)
		synctest.Wait()
		stop()
	})
}

// Nothing is reported after the end: stop waits for a running report.
func TestWatcherStopWaitsForTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w := newWatcher(&fakeStore{}, "suse.com/a:1", func(p status.Progress) {
			if p.Phase != "resolving" {
				<-gate
			}
		})
		w.expect([]ocispec.Descriptor{blob("base", 100)})
		stop := w.start(t.Context())
		<-time.After(watchInterval)
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped during a report")
		default:
		}
		close(gate)
		<-stopped
	})
}

type hungStore struct{ ingests }

func (hungStore) ListStatuses(ctx context.Context, _ ...string) ([]content.Status, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
