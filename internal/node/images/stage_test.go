// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// fakeLeases counts the existing leases.
type fakeLeases struct {
	leases.Manager
	live map[string]leases.Lease
}

func (f *fakeLeases) Create(_ context.Context, opts ...leases.Opt) (leases.Lease, error) {
	var l leases.Lease
	for _, opt := range opts {
		if err := opt(&l); err != nil {
			return l, err
		}
	}
	f.live[l.ID] = l
	return l, nil
}

func (f *fakeLeases) List(context.Context, ...string) (all []leases.Lease, err error) {
	for _, l := range f.live {
		all = append(all, l)
	}
	return all, nil
}

func (f *fakeLeases) Delete(_ context.Context, l leases.Lease, _ ...leases.DeleteOpt) error {
	delete(f.live, l.ID)
	return nil
}

// unpackedAll is a snapshotter that has the snapshot of heldImage's layer, or has only started it, or does not answer.
type unpackedAll struct {
	snapshots.Snapshotter
	not bool
	err error
}

func (u unpackedAll) Walk(ctx context.Context, f snapshots.WalkFunc, _ ...string) error {
	if u.err != nil {
		return u.err
	}
	info := snapshots.Info{Name: digest.FromString("layer").String(), Kind: snapshots.KindCommitted}
	if u.not {
		info.Kind = snapshots.KindActive
	}
	return f(ctx, info)
}

// write puts a blob into a store.
func write(t *testing.T, store content.Store, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	require.NoError(t, content.WriteBlob(t.Context(), store, desc.Digest.String(), bytes.NewReader(data), desc))
	return desc
}

// heldImage writes an image of one layer and returns its manifest.
func heldImage(t *testing.T, store content.Store, platform ocispec.Platform) ocispec.Descriptor {
	t.Helper()
	return labelledImage(t, store, platform, nil)
}

func labelledImage(
	t *testing.T, store content.Store, platform ocispec.Platform, labels map[string]string,
) ocispec.Descriptor {
	t.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		return data
	}
	layer := write(t, store, ocispec.MediaTypeImageLayer, []byte("layer"))
	config := write(t, store, ocispec.MediaTypeImageConfig, encode(ocispec.Image{
		Platform: platform, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
		Config: ocispec.ImageConfig{Labels: labels},
	}))
	return write(t, store, ocispec.MediaTypeImageManifest, encode(ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{layer},
	}))
}

// inMemory returns a session without a containerd.
func inMemory(t *testing.T, records *fakeRecords, snapshotter unpackedAll) (*session, content.Store, *fakeLeases) {
	t.Helper()
	store, err := local.NewStore(t.TempDir())
	require.NoError(t, err)
	c, held := sessionOn(t, records), &fakeLeases{live: map[string]leases.Lease{}}
	c.snapshotter = func(context.Context) (string, error) { return "fake", nil }
	c.matcher = platforms.Only(c.platform)
	c.client, err = containerd.New("", containerd.WithServices(
		containerd.WithImageStore(records), containerd.WithContentStore(store), containerd.WithLeasesService(held),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{"fake": snapshotter})))
	require.NoError(t, err)
	return c, store, held
}

// The second of the two records cannot be written: the next staging writes only that one.
func TestStageAgainAfterAnError(t *testing.T) {
	t.Parallel()
	records := &fakeRecords{records: map[string]images.Image{}}
	c, store, held := inMemory(t, records, unpackedAll{})
	target := heldImage(t, store, c.platform)
	release := release.Release{Repository: "suse.com/a", Tag: "1-rev1", Long: "1-rev1-build1", Digest: target.Digest}
	records.records["suse.com/a:1-rev1"] = images.Image{Name: "suse.com/a:1-rev1", Target: target}
	records.broken = pinName(release.Repository, release.Digest)

	var seen []status.Progress
	report := func(p status.Progress) { seen = append(seen, p) }
	require.ErrorIs(t, c.run(t.Context(), c, newJob(release, node.StageOptions{Progress: report})), errBroken)
	assert.Equal(t, []string{"suse.com/a:1-rev1-build1"}, records.wrote, "the pin is last")
	assert.Empty(t, held.live)
	assert.Empty(t, seen, "not done")

	records.broken, records.wrote = "", nil
	require.NoError(t, c.run(t.Context(), c, newJob(release, node.StageOptions{Progress: report})))
	assert.Len(t, records.records, 3)
	assert.Equal(t, []string{pinName("suse.com/a", target.Digest)}, records.wrote)
	assert.Empty(t, held.live)
	assert.Len(t, seen, 1)
}

func TestComplete(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		change func(t *testing.T, c *session, target ocispec.Descriptor)
		not    unpackedAll
		want   bool
	}{
		"all there":    {want: true},
		"not unpacked": {not: unpackedAll{not: true}},
		"layer lost": {change: func(t *testing.T, c *session, _ ocispec.Descriptor) {
			t.Helper()
			require.NoError(t, c.client.ContentStore().Delete(t.Context(), digest.FromString("layer")))
		}},
		"manifest lost": {change: func(t *testing.T, c *session, target ocispec.Descriptor) {
			t.Helper()
			require.NoError(t, c.client.ContentStore().Delete(t.Context(), target.Digest))
		}},
		"another platform": {change: func(_ *testing.T, c *session, _ ocispec.Descriptor) {
			c.matcher = platforms.Only(ocispec.Platform{OS: "linux", Architecture: "s390x"})
		}},
	} {
		c, store, _ := inMemory(t, &fakeRecords{}, is.not)
		target := heldImage(t, store, c.platform)
		if is.change != nil {
			is.change(t, c, target)
		}
		got, err := c.isComplete(t.Context(), target)
		require.NoError(t, err, name)
		assert.Equal(t, is.want, got, name)
	}
	c, store, _ := inMemory(t, &fakeRecords{}, unpackedAll{err: errBroken})
	_, err := c.isComplete(t.Context(), heldImage(t, store, c.platform))
	require.ErrorIs(t, err, errBroken, "a wrong setting is not a missing image")
	assert.ErrorContains(t, err, `list snapshots of "fake"`)
}

// A record of an unreadable image is still listed.
func TestHeldOddRecords(t *testing.T) {
	t.Parallel()
	records := &fakeRecords{records: map[string]images.Image{"suse.com/lost:1": record("suse.com/lost:1", someDigest)}}
	c, store, _ := inMemory(t, records, unpackedAll{})
	odd := write(t, store, ocispec.MediaTypeImageManifest, []byte("not JSON"))
	records.records["suse.com/odd:1"] = images.Image{Name: "suse.com/odd:1", Target: odd}
	target := heldImage(t, store, c.platform)
	pin := pinRecord("suse.com/a", images.Image{Target: target})
	records.records[pin.Name] = pin

	held, err := c.held(t.Context())
	require.NoError(t, err)
	config, err := images.Config(t.Context(), store, target, c.matcher)
	require.NoError(t, err)
	assert.ElementsMatch(t, []node.HeldImage{
		{Name: "suse.com/lost:1", Digest: someDigest},
		{Name: "suse.com/odd:1", Digest: odd.Digest},
		{
			Name: pin.Name, Digest: target.Digest, Pin: true, Repository: "suse.com/a", Complete: true, Config: config.Digest,
			MediaType: target.MediaType, Size: target.Size,
		},
	}, held)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = inCancelled(c).held(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// The parts of a digest are read once, and dropped with its last record.
func TestPartsAreCached(t *testing.T) {
	t.Parallel()
	records := &fakeRecords{records: map[string]images.Image{}}
	c, store, _ := inMemory(t, records, unpackedAll{})
	target := heldImage(t, store, c.platform)
	pin := pinRecord("suse.com/a", images.Image{Target: target})
	records.records[pin.Name] = pin
	first, err := c.held(t.Context())
	require.NoError(t, err)
	assert.Len(t, c.partsCache, 1)

	config, err := images.Config(t.Context(), store, target, c.matcher)
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), config.Digest))
	second, err := c.held(t.Context())
	require.NoError(t, err)
	assert.Equal(t, first[0].Config, second[0].Config, "not read again")
	assert.True(t, first[0].Complete)
	assert.False(t, second[0].Complete, "but what is gone is noticed")

	delete(records.records, pin.Name)
	_, err = c.held(t.Context())
	require.NoError(t, err)
	assert.Empty(t, c.partsCache)
}

// inCancelled wraps a content store so that it checks its context, as a remote one does.
func inCancelled(c *session) *session {
	client, err := containerd.New("", containerd.WithServices(
		containerd.WithImageStore(c.client.ImageService()), containerd.WithContentStore(awayStore{})))
	if err != nil {
		panic(err)
	}
	return &session{Store: c.Store, client: client, matcher: c.matcher}
}

type awayStore struct{ content.Store }

func (awayStore) Walk(ctx context.Context, _ content.WalkFunc, _ ...string) error { return ctx.Err() }

func (awayStore) ReaderAt(ctx context.Context, _ ocispec.Descriptor) (content.ReaderAt, error) {
	return nil, ctx.Err()
}

func TestLayersWaitForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running int
		turn := make(chan struct{})
		next := images.HandlerFunc(func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			running++
			<-turn
			return nil, nil
		})
		c, _, _ := inMemory(t, &fakeRecords{}, unpackedAll{})
		handler := (&guard{session: c}).wrap(next)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 10)
		for range cap(ended) {
			go func() {
				_, err := handler.Handle(ctx, blob("layer", 1))
				ended <- err
			}()
			synctest.Wait() // one after another, so that running needs no lock
		}
		assert.Equal(t, downloads, running)
		turn <- struct{}{}
		require.NoError(t, <-ended)
		synctest.Wait()
		assert.Equal(t, downloads+1, running)
		cancel()
		synctest.Wait()
		assert.Len(t, ended, cap(ended)-1-downloads, "those that waited")
		close(turn)
		synctest.Wait()
	})
}

// The config is fetched without a slot, and so without the size check of all others.
func TestConfigsAreBounded(t *testing.T) {
	t.Parallel()
	config := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}
	handler := (&guard{session: sessionOn(t, &fakeRecords{}), onManifest: func([]ocispec.Descriptor) {}}).wrap(images.HandlerFunc(
		func(_ context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			assert.NotEqual(t, config.MediaType, desc.MediaType, "was fetched")
			return []ocispec.Descriptor{config}, nil
		}))
	_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Size: 1})
	require.ErrorContains(t, err, "at most 8388608")
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	for _, mediaType := range []string{ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, "application/unknown"} {
		handler := (&guard{session: sessionOn(t, &fakeRecords{})}).wrap(images.HandlerFunc(
			func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) {
				t.Error("was fetched")
				return nil, nil
			}))
		_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: maxDocument + 1})
		assert.ErrorContains(t, err, "at most 8388608", mediaType)
	}
}

// naming returns a session, a store with a pinned image, and the image's release.
func naming(t *testing.T) (*session, *fakeRecords, content.Store, release.Release) {
	t.Helper()
	records := &fakeRecords{records: map[string]images.Image{}}
	c, store, _ := inMemory(t, records, unpackedAll{})
	pin := pinRecord("suse.com/a", images.Image{Target: heldImage(t, store, c.platform)})
	records.records[pin.Name] = pin
	return c, records, store, release.Release{Repository: "suse.com/a", Digest: pin.Target.Digest}
}

func TestNameDigest(t *testing.T) {
	t.Parallel()
	c, records, _, r := naming(t)
	require.NoError(t, c.nameDigest(t.Context(), r))
	named := records.records[digestName(r)]
	assert.Equal(t, records.records[pinName(r.Repository, r.Digest)].Target, named.Target)
	assert.Equal(t, map[string]string{
		"io.cri-containerd.image": "managed", "org.opensuse.image-update-agent/staged": r.Repository,
	}, named.Labels)
	repository, ours := stagedOf(named)
	assert.True(t, ours)
	assert.Equal(t, r.Repository, repository)
	require.NoError(t, c.nameDigest(t.Context(), r))
	assert.Equal(t, []string{digestName(r)}, records.wrote, "written once, and nothing else")
}

func TestNameDigestRepairs(t *testing.T) {
	t.Parallel()
	c, records, _, r := naming(t)
	records.records[digestName(r)] = record(digestName(r), digest.FromString("another"))
	require.NoError(t, c.nameDigest(t.Context(), r))
	assert.Equal(t, r.Digest, records.records[digestName(r)].Target.Digest)
}

// A record written by a pull through CRI is not changed.
func TestNameDigestKeepsRecordsOfCRI(t *testing.T) {
	t.Parallel()
	c, records, _, r := naming(t)
	cris := images.Image{
		Name: digestName(r), Target: records.records[pinName(r.Repository, r.Digest)].Target,
		Labels: map[string]string{labelManaged: managed},
	}
	records.records[cris.Name] = cris
	require.NoError(t, c.nameDigest(t.Context(), r))
	assert.Empty(t, records.wrote)
	assert.Equal(t, cris, records.records[cris.Name])
}

// with returns the session on another image store and snapshotter.
func with(t *testing.T, c *session, records images.Store, snapshotter snapshots.Snapshotter) *session {
	t.Helper()
	client, err := containerd.New("", containerd.WithServices(
		containerd.WithImageStore(records), containerd.WithContentStore(c.client.ContentStore()),
		containerd.WithLeasesService(&fakeLeases{live: map[string]leases.Lease{}}),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{"fake": snapshotter})))
	require.NoError(t, err)
	return &session{Store: c.Store, client: client, matcher: c.matcher, link: c.link}
}

func TestNameDigestIncomplete(t *testing.T) {
	t.Parallel()
	for _, isHeld := range []bool{true, false} {
		c, records, store, r := naming(t)
		require.NoError(t, store.Delete(t.Context(), digest.FromString("layer")))
		if !isHeld {
			clear(records.records)
		}
		err := c.nameDigest(t.Context(), r)
		require.ErrorIs(t, err, release.ErrNotFound)
		assert.EqualError(t, err, "not found: not complete for "+platforms.Format(c.platform))
		assert.Empty(t, records.wrote)
	}
}

// collected is an image store whose content is deleted when a name is written: it was not pinned, and the garbage
// collector was faster.
type collected struct {
	*fakeRecords
	collect func()
}

func (g collected) Create(ctx context.Context, i images.Image) (images.Image, error) {
	g.collect()
	return g.fakeRecords.Create(ctx, i)
}

func TestNameDigestCollected(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"ours": nil, "CRI's": {labelManaged: managed},
	} {
		c, records, store, r := naming(t)
		g := collected{records, func() {
			require.NoError(t, store.Delete(t.Context(), digest.FromString("layer")))
			if labels != nil {
				there := records.records[pinName(r.Repository, r.Digest)]
				there.Name, there.Labels = digestName(r), labels
				records.records[there.Name] = there
			}
		}}
		require.ErrorIs(t, with(t, c, g, unpackedAll{}).nameDigest(t.Context(), r), release.ErrNotFound, name)
		_, left := records.records[digestName(r)]
		assert.Equal(t, labels != nil, left, "%s: a name that promises too much", name)
	}
}

// An image that was collected while it was named keeps no new record: CRI would find a name that promises too much. A
// pin of before stays.
func TestStageCollected(t *testing.T) {
	t.Parallel()
	for _, isPinned := range []bool{false, true} {
		c, records, store, r := naming(t)
		r.Long = "1-rev1-build1"
		target := records.records[pinName(r.Repository, r.Digest)].Target
		before := maps.Clone(records.records)
		if !isPinned {
			clear(before)
			clear(records.records)
		}
		var once sync.Once
		g := collected{records, func() {
			once.Do(func() { require.NoError(t, store.Delete(t.Context(), digest.FromString("layer"))) })
		}}
		require.EqualError(t, with(t, c, g, unpackedAll{}).name(t.Context(), r, target), "incomplete after it was named")
		assert.Contains(t, records.wrote, r.StagedName())
		assert.Equal(t, before, records.records)
	}
}

// A containerd that fails the last query must not cost an existing name.
func TestNameDigestReadErrors(t *testing.T) {
	t.Parallel()
	c, records, _, r := naming(t)
	require.NoError(t, c.nameDigest(t.Context(), r))
	c = with(t, c, records, &brokenLater{Snapshotter: unpackedAll{}})
	require.ErrorIs(t, c.nameDigest(t.Context(), r), errBroken)
	assert.Contains(t, records.records, digestName(r))
}

// brokenLater answers once.
type brokenLater struct {
	snapshots.Snapshotter
	asked int
}

func (b *brokenLater) Walk(ctx context.Context, f snapshots.WalkFunc, filters ...string) error {
	if b.asked++; b.asked > 1 {
		return errBroken
	}
	return b.Snapshotter.Walk(ctx, f, filters...)
}

func TestNameErrors(t *testing.T) {
	t.Parallel()
	c, records, _, r := naming(t)
	records.broken = digestName(r)
	err := c.nameDigest(t.Context(), r)
	require.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "record "+digestName(r)+": broken")

	unlisted := with(t, c, unlistable{records}, unpackedAll{})
	err = unlisted.nameDigest(t.Context(), r)
	require.ErrorIs(t, err, errdefs.ErrUnavailable)
	assert.NotErrorIs(t, err, release.ErrNotFound)
}

type unlistable struct{ *fakeRecords }

func (unlistable) List(context.Context, ...string) ([]images.Image, error) {
	return nil, errdefs.ErrUnavailable
}

// fakeRecords is an image store in memory; writing names in broken fails.
type fakeRecords struct {
	images.Store
	records map[string]images.Image
	broken  string
	wrote   []string // names, in order
}

var errBroken = errors.New("broken")

func (f *fakeRecords) Get(_ context.Context, name string) (images.Image, error) {
	if record, ok := f.records[name]; ok {
		return record, nil
	}
	return images.Image{}, errdefs.ErrNotFound
}

func (f *fakeRecords) List(_ context.Context, filters ...string) (all []images.Image, err error) {
	for _, record := range f.records {
		if len(filters) == 0 || slices.Contains(filters, "target.digest=="+record.Target.Digest.String()) {
			all = append(all, record)
		}
	}
	return all, nil
}

func (f *fakeRecords) Create(_ context.Context, i images.Image) (images.Image, error) {
	if _, ok := f.records[i.Name]; ok {
		return i, errdefs.ErrAlreadyExists
	}
	return f.write(i)
}

func (f *fakeRecords) Update(_ context.Context, i images.Image, _ ...string) (images.Image, error) {
	return f.write(i)
}

func (f *fakeRecords) write(i images.Image) (images.Image, error) {
	if i.Name == f.broken {
		return i, errBroken
	}
	f.wrote = append(f.wrote, i.Name)
	f.records[i.Name] = i
	return i, nil
}

func (f *fakeRecords) Delete(_ context.Context, name string, _ ...images.DeleteOpt) error {
	if name == f.broken {
		return errBroken
	}
	delete(f.records, name)
	return nil
}

func sessionOn(t *testing.T, f *fakeRecords) *session {
	t.Helper()
	client, err := containerd.New("", containerd.WithServices(containerd.WithImageStore(f)))
	require.NoError(t, err)
	store, err := New(Options{Socket: "/run/containerd/containerd.sock", Source: from{}})
	require.NoError(t, err)
	return &session{Store: store, client: client, link: newLink()}
}

func TestPinsAddBeforeTheyDrop(t *testing.T) {
	t.Parallel()
	pin := pinRecord("suse.com/a", record("", someDigest))
	moved := pinRecord("suse.com/b", pin)
	f := &fakeRecords{records: map[string]images.Image{pin.Name: pin}, broken: moved.Name}
	c := sessionOn(t, f)
	err := c.pins(t.Context(), []release.Pin{{Repository: "suse.com/b", Digest: someDigest}})
	require.ErrorIs(t, err, errBroken)
	assert.ErrorContains(t, err, moved.Name)
	assert.Contains(t, f.records, pin.Name, "the digest was left without a pin")
	f.broken = pin.Name
	require.ErrorIs(t, c.pins(t.Context(), nil), errBroken)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Socket: "run/containerd.sock", Source: from{}})
	assert.EqualError(t, err, `containerd "run/containerd.sock": not an absolute path`)
	_, err = New(Options{Socket: "/run/containerd.sock"})
	assert.EqualError(t, err, "containerd: no source")
}

func TestNoSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	_, err = store.Held(t.Context())
	assert.EqualError(t, err, "containerd "+socket+": connect: no such file or directory")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every call closes its connection, even after an error; TestMain detects one that is left.
func TestNotContainerd(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "other.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	place := "containerd " + socket + ": "
	_, err = store.Held(t.Context())
	assert.ErrorContains(t, err, place+"list images: unknown service")
	assert.ErrorContains(t, store.Pins(t.Context(), nil), place+"list images: unknown service")
	rel := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	assert.ErrorContains(t, store.Name(t.Context(), release.Pin{Repository: "suse.com/a", Digest: someDigest}),
		place+digestName(rel)+": list images: unknown service")
	assert.ErrorContains(t, store.Stage(t.Context(), rel, node.StageOptions{}), place+digestName(rel)+": leases: unknown service")
}

// badReleases never reach containerd, because their parts would become names.
var badReleases = map[string]release.Release{
	"no digest":        {Repository: "suse.com/a"},
	"half a digest":    {Repository: "suse.com/a", Digest: "sha256:12"},
	"not normalised":   {Repository: "sles12/velum", Digest: someDigest},
	"no repository":    {Digest: someDigest},
	"with a tag":       {Repository: "suse.com/a:1", Digest: someDigest},
	"tag with a slash": {Repository: "suse.com/a", Digest: someDigest, Long: "1/../../b"},
	"tag with digest":  {Repository: "suse.com/a", Digest: someDigest, Long: "1@" + someDigest.String()},
	"tag too long":     {Repository: "suse.com/a", Digest: someDigest, Long: someDigest.Encoded() + someDigest.Encoded() + "1"},
}

func TestBadReleasesAreRefused(t *testing.T) {
	t.Parallel()
	store := sessionOn(t, &fakeRecords{})
	for name, r := range badReleases {
		assert.ErrorContains(t, store.Stage(t.Context(), r, node.StageOptions{}), "stage: ", name)
		if pin := (release.Pin{Repository: r.Repository, Digest: r.Digest}); r.Long == "" {
			assert.ErrorContains(t, store.Name(t.Context(), pin), "name: ", name)
		}
	}
}
