// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

const (
	// reconnectTimeout is how long a pull waits for containerd after it stopped.
	reconnectTimeout = 30 * time.Second
	// reconnectInterval is the time between attempts. An update of containerd takes a
	// second.
	reconnectInterval = 250 * time.Millisecond
	// readyTimeout is how long to wait for a containerd that accepts connections but is not ready yet.
	readyTimeout = 5 * time.Second
	// maxRestarts limits the restarts of containerd in one staging: the agent's requests may be what makes it crash.
	maxRestarts = 3
)

// job is the state of one call of Stage, across connections to containerd.
type job struct {
	release release.Release
	ref     string // repository@digest
	options node.StageOptions

	spaceGranted bool            // CheckSpace was called without an error
	resumes      bool            // an earlier attempt left bytes
	fetched      atomic.Int64    // bytes of layers
	progress     status.Progress // as last reported
}

func newJob(r release.Release, o node.StageOptions) *job {
	return &job{release: r, ref: digestName(r), options: o}
}

// report reports the progress. It is called from one goroutine at a time.
func (j *job) report(p status.Progress) {
	j.progress = p
	if j.options.Progress != nil {
		j.options.Progress(p)
	}
}

func (j *job) addFetched(n int) { j.fetched.Add(int64(n)) }

var errTimeout = errors.New("timed out")

// run stages within the timeout, and again after a restart of containerd: the lease has kept the fetched content. It
// closes the session c.
func (s *Store) run(ctx context.Context, c *session, j *job) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
			err = fmt.Errorf("%w of %s, at %d of %d bytes: %w",
				errTimeout, s.timeout, j.progress.Done, j.progress.Total, err)
		}
	}()
	for restarts := 0; ; restarts++ {
		err = c.attempt(ctx, j)
		if !isTransient(err) || ctx.Err() != nil || restarts == maxRestarts {
			err = c.finish(ctx, j, err)
			c.close()
			if err != nil && restarts > 0 {
				err = fmt.Errorf("after %d restarts: %w", restarts, err)
			}
			return err
		}
		c.close()
		s.log.Info("waiting for the restart of containerd", "release", j.ref, "error", err)
		if c, err = s.reconnect(ctx); err != nil {
			return err
		}
	}
}

// attempt stages over one connection.
func (c *session) attempt(ctx context.Context, j *job) (err error) {
	ctx, cancel := c.link.bind(ctx)
	defer cancel()
	defer func() {
		if err != nil && c.link.isLost() {
			err = fmt.Errorf("%w: %w", errConnectionLost, err)
		}
	}()
	if ctx, err = c.lease(ctx, j); err != nil {
		return err
	}
	return c.stage(ctx, j)
}

// finish deletes or keeps the leases.
func (c *session) finish(ctx context.Context, j *job, err error) error {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	err = withKind(err)
	if !c.link.isLost() {
		c.endLeases(ctx, j, err)
	}
	return err
}

// reconnect waits for containerd after it stopped.
func (s *Store) reconnect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.reconnectTimeout, errAway)
	defer cancel()
	tick := time.NewTicker(reconnectInterval)
	defer tick.Stop()
	var cause error
	for {
		c, err := s.openReady(ctx)
		switch {
		case err == nil:
			return c, nil
		case cause == nil || !errors.Is(err, context.DeadlineExceeded): // the deadline is not the cause
			cause = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), cause)
		}
	}
}

var errAway = fmt.Errorf("stopped during a pull, and did not restart within %s", reconnectTimeout)

// openReady opens a session with a containerd that answers.
func (s *Store) openReady(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.client.Version(ctx)
	if err == nil {
		_, err = c.snapshotterName(ctx) // CRI is ready a moment later
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

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
