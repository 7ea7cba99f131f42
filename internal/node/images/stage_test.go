// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"testing"
	"testing/synctest"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// The second of the two records cannot be written: the first one is removed.
func TestStageUndoesOnAnError(t *testing.T) {
	t.Parallel()
	records := &fakeRecords{records: map[string]images.Image{}}
	c, store, held := inMemory(t, records, unpackedAll{})
	target := heldImage(t, store, c.platform)
	release := release.Release{Repository: "suse.com/a", Tag: "1-rev1", Long: "1-rev1-build1", Digest: target.Digest}
	records.records["suse.com/a:1-rev1"] = images.Image{Name: "suse.com/a:1-rev1", Target: target}
	before := maps.Clone(records.records)
	records.broken = pinName(release.Repository, release.Digest)

	var seen []status.Progress
	report := func(p status.Progress) { seen = append(seen, p) }
	require.ErrorIs(t, c.run(t.Context(), c, newJob(release, node.StageOptions{Progress: report})), errBroken)
	assert.Equal(t, before, records.records)
	assert.Empty(t, held.live)
	assert.Empty(t, seen, "not done")

	records.broken, records.wrote = "", nil
	require.NoError(t, c.run(t.Context(), c, newJob(release, node.StageOptions{Progress: report})))
	assert.Len(t, records.records, 3)
	assert.Equal(t, []string{"suse.com/a:1-rev1-build1", pinName("suse.com/a", target.Digest)}, records.wrote, "the pin is last")
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
