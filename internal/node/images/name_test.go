// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

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
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{"fake": snapshotter})))
	require.NoError(t, err)
	return &session{Store: c.Store, client: client, matcher: c.matcher, link: c.link}
}

func TestNameDigestIncomplete(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(c *session, records *fakeRecords){
		"nobody holds it": func(_ *session, records *fakeRecords) { clear(records.records) },
		"layer lost": func(c *session, _ *fakeRecords) {
			require.NoError(t, c.client.ContentStore().Delete(t.Context(), digest.FromString("layer")))
		},
		"another platform": func(c *session, _ *fakeRecords) {
			c.matcher = platforms.Only(ocispec.Platform{OS: "linux", Architecture: "s390x"})
		},
	} {
		c, records, _, r := naming(t)
		lose(c, records)
		err := c.nameDigest(t.Context(), r)
		require.ErrorIs(t, err, release.ErrNotFound, name)
		assert.EqualError(t, err, "not found: not complete for "+platforms.Format(c.platform), name)
		assert.Empty(t, records.wrote, name)
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

func TestNameRefuses(t *testing.T) {
	t.Parallel()
	store := sessionOn(t, &fakeRecords{})
	for name, r := range badReleases {
		if r.Long != "" {
			continue
		}
		assert.ErrorContains(t, store.Name(t.Context(), release.Pin{Repository: r.Repository, Digest: r.Digest}), "name: ", name)
	}
}
