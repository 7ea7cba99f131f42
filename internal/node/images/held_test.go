// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// calls counts the calls to containerd, by name. Calls that are not counted here panic on a nil interface.
type calls map[string]int

type countedRecords struct {
	images.Store
	list func() []images.Image
	calls
}

func (c countedRecords) List(context.Context, ...string) ([]images.Image, error) {
	c.calls["list images"]++
	return c.list(), nil
}

type countedContent struct {
	content.Store
	from content.Store
	calls
}

func (c countedContent) Walk(ctx context.Context, f content.WalkFunc, filters ...string) error {
	c.calls["list content"]++
	return c.from.Walk(ctx, f, filters...)
}

func (c countedContent) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	c.calls["read"]++
	return c.from.ReaderAt(ctx, d)
}

type countedSnapshots struct {
	snapshots.Snapshotter
	from snapshots.Snapshotter
	calls
}

func (c countedSnapshots) Walk(ctx context.Context, f snapshots.WalkFunc, filters ...string) error {
	c.calls["list snapshots"]++
	return c.from.Walk(ctx, f, filters...)
}

// For any number of records, an observation costs three listings, and reads each image once.
func TestHeldCallsOfThousands(t *testing.T) {
	t.Parallel()
	const many = 1200
	c, store, _ := inMemory(t, &fakeRecords{}, unpackedAll{})
	target := labelledImage(t, store, c.platform, map[string]string{"org.opensuse.reference": "suse.com/caasp/a:1"})
	records := make([]images.Image, 0, many)
	for n := range many {
		r := images.Image{Name: fmt.Sprintf("suse.com/a%d:1", n), Target: target}
		switch n % 3 {
		case 0:
			r = pinRecord(fmt.Sprintf("suse.com/a%d", n), r)
		case 1:
			r.Labels = map[string]string{labelStaged: fmt.Sprintf("suse.com/a%d", n)}
		}
		records = append(records, r)
	}
	made := calls{}
	counted, err := containerd.New("", containerd.WithServices(
		containerd.WithImageStore(countedRecords{list: func() []images.Image { return records }, calls: made}),
		containerd.WithContentStore(countedContent{from: store, calls: made}),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{
			"fake": countedSnapshots{from: unpackedAll{}, calls: made},
		})))
	require.NoError(t, err)
	c.client = counted
	for round := range 3 {
		clear(made)
		held, err := c.held(t.Context())
		require.NoError(t, err)
		require.Len(t, held, many)
		assert.Equal(t, "caasp/a", held[many-1].Origin, "the image tells it, and needs no registry")
		assert.Equal(t, [3]bool{true, false, false}, [3]bool{held[0].Pin, held[1].Pin, held[2].Pin})
		assert.Equal(t, [3]bool{false, true, false}, [3]bool{held[0].Staged, held[1].Staged, held[2].Staged})
		reads := made["read"]
		delete(made, "read")
		assert.Equal(t, calls{"list images": 1, "list content": 1, "list snapshots": 1}, made)
		assert.Equal(t, round > 0, reads == 0, "round %d: %d reads", round, reads)
		assert.Less(t, reads, 10)
	}
}

func TestHeldReportsStagedRecords(t *testing.T) {
	t.Parallel()
	long, pulled := record("suse.com/a:1-rev1-build1", someDigest), record("suse.com/a:1-rev1", someDigest)
	long.Labels = map[string]string{labelStaged: "suse.com/a", labelManaged: managed}
	copied := record("suse.com/a:mine/too", someDigest)
	copied.Labels = long.Labels
	records := &fakeRecords{records: map[string]images.Image{}}
	for _, r := range []images.Image{long, pulled, copied} {
		records.records[r.Name] = r
	}
	c, store, _ := inMemory(t, records, unpackedAll{})
	write(t, store, "text/plain", []byte("not of these")) // the images' content is lost
	held, err := c.held(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []node.HeldImage{
		{Name: long.Name, Digest: someDigest, Staged: true, Repository: "suse.com/a"},
		{Name: pulled.Name, Digest: someDigest},
		{Name: copied.Name, Digest: someDigest},
	}, held)

	// A CRI pull of the same name wipes the labels.
	long.Labels = map[string]string{labelManaged: managed}
	long.Target.Digest = digest.FromString("pulled")
	records.records = map[string]images.Image{long.Name: long}
	held, err = c.held(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.HeldImage{{Name: long.Name, Digest: long.Target.Digest}}, held)
}
