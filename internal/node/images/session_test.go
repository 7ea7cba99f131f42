// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	version "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
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

// The agent waits until the timeout for a containerd that stops during a pull and does not restart.
func TestStageWaitsForContainerdToRestart(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "dies.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 2 { // the probe, and the session
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		_ = listener.Close()
	}()
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	store.reconnectTimeout = 3 * reconnectInterval
	release := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	err = store.Stage(t.Context(), release, node.StageOptions{})
	<-ended
	require.ErrorIs(t, err, errAway)
	assert.ErrorContains(t, err, "containerd "+socket+": "+digestName(release)+": stopped during a pull")
	assert.ErrorContains(t, err, "no such file")
	assert.Empty(t, store.staging)
}

// answering is a containerd that names its version.
type answering struct {
	version.UnimplementedVersionServer
}

func (answering) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{}, nil
}

// A containerd that answers, and in which every attempt fails on the remains of a kill, is not asked without end.
func TestRestartsInOneStagingAreBounded(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "remains.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	remains := func(any, grpc.ServerStream) error { return syscall.EEXIST }
	server := grpc.NewServer(grpc.UnknownServiceHandler(remains))
	version.RegisterVersionServer(server, answering{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	store, err := New(Options{
		Socket: socket, Source: from{}, Snapshotter: func(context.Context) (string, error) { return "native", nil },
	})
	require.NoError(t, err)
	release := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	err = store.Stage(t.Context(), release, node.StageOptions{})
	assert.ErrorContains(t, err, fmt.Sprintf("after %d restarts", maxRestarts))
}

// A session does not reconnect, because that could be another containerd.
func TestLinkIsOneConnection(t *testing.T) {
	t.Parallel()
	l := newLink()
	here, there := net.Pipe()
	conn, err := l.dial(t.Context(), "", func(context.Context, string) (net.Conn, error) { return here, nil })
	require.NoError(t, err)
	ctx, cancel := l.bind(t.Context())
	defer cancel()
	assert.False(t, l.isLost())
	require.NoError(t, there.Close())
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errConnectionLost)
	_, err = l.dial(t.Context(), "", nil)
	require.ErrorIs(t, err, errConnectionLost)
}

func TestSnapshotterIsAskedOnce(t *testing.T) {
	t.Parallel()
	c := sessionOn(t, &fakeRecords{})
	asked, answer := 0, errBroken
	c.snapshotter = func(context.Context) (string, error) {
		asked++
		return "native", answer
	}
	_, err := c.snapshotterName(t.Context())
	require.ErrorIs(t, err, errBroken, "never guessed")
	answer = nil
	for range 2 {
		name, err := c.snapshotterName(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "native", name)
	}
	assert.Equal(t, 2, asked)
	c = sessionOn(t, &fakeRecords{})
	c.snapshotter = func(context.Context) (string, error) { return "", nil }
	_, err = c.snapshotterName(t.Context())
	assert.EqualError(t, err, "snapshotter: has no name")
}

// Whether the content is kept for the next attempt, by the error.
func TestKeepsLease(t *testing.T) {
	t.Parallel()
	broken := fromRegistry(errors.New("connection reset"))
	for name, is := range map[string]struct {
		err     error
		brought int
		resumes bool
		want    bool
	}{
		"broken in a layer":           {broken, 1, false, true},
		"broken before a layer":       {broken, 0, false, false},
		"broken before the next byte": {broken, 0, true, true},
		"cancelled":                   {context.Canceled, 1, false, true},
		"disk full":                   {release.ErrNoSpace, 1, true, false},
		"vanished":                    {fromRegistry(release.ErrNotFound), 1, true, false},
		"for another platform":        {release.ErrPlatform, 1, true, false},
		"no room":                     {&spaceError{release.ErrHeld}, 0, false, false},
		"no room for the rest of it":  {&spaceError{release.ErrHeld}, 0, true, true},
	} {
		j := &job{resumes: is.resumes}
		j.addFetched(is.brought)
		assert.Equal(t, is.want, j.keepsLease(is.err), name)
	}
}

// containerd quotes registries, in texts of any length.
func TestErrorsOfContainerdAreOneLine(t *testing.T) {
	t.Parallel()
	c := sessionOn(t, &fakeRecords{})
	err := c.wrapError(fmt.Errorf("%s\x1b: %w", strings.Repeat("x", 1<<20), errBroken))
	require.ErrorIs(t, err, errBroken)
	assert.Equal(t, outside.Line(err.Error(), outside.MaxError), err.Error())
}

// A full disk is the node's only if containerd says so.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full := errors.New("write /var/lib/containerd/x: no space left on device")
	for name, is := range map[string]struct {
		err  error
		want bool
	}{
		"containerd, in a blob":      {fmt.Errorf("failed to send write: %w", full), true},
		"containerd, in a snapshot":  {fmt.Errorf("unpack: failed to extract layer: %w: %w", full, errdefs.ErrUnknown), true},
		"a quota":                    {errors.New("write /x: disk quota exceeded"), true},
		"known already":              {fmt.Errorf("x: %w", release.ErrNoSpace), true},
		"the registry's, in an HTTP": {fmt.Errorf("failed to copy: %w", fromRegistry(full)), false},
		"the registry's 404":         {fromRegistry(fmt.Errorf("%w: %w", errdefs.ErrNotFound, full)), false},
		"something else":             {io.ErrUnexpectedEOF, false},
	} {
		got := withKind(is.err)
		assert.Equal(t, is.want, errors.Is(got, release.ErrNoSpace), name)
		assert.ErrorIs(t, got, is.err, name)
	}
	assert.NoError(t, withKind(nil))
}

func TestTransientErrors(t *testing.T) {
	t.Parallel()
	exists := errors.New("failed to rename: rename snapshots/new-1 snapshots/74: file exists")
	for name, is := range map[string]struct {
		err  error
		want bool
	}{
		"none":                   {nil, false},
		"gone":                   {fmt.Errorf("%w: %w", errConnectionLost, io.EOF), true},
		"left by a kill":         {fmt.Errorf("failed to prepare: %w", exists), true},
		"the registry's message": {fromRegistry(exists), false},
		"a full disk":            {release.ErrNoSpace, false},
	} {
		assert.Equal(t, is.want, isTransient(is.err), name)
	}
}
