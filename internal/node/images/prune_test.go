// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"maps"
	"slices"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// deletions is an image store that records deletions.
type deletions struct {
	*fakeRecords
	asked  []images.DeleteOptions
	unread error
	before func(name string) // changes by others between check and deletion
}

func (d *deletions) Get(ctx context.Context, name string) (images.Image, error) {
	if d.unread != nil {
		return images.Image{}, d.unread
	}
	return d.fakeRecords.Get(ctx, name)
}

func (d *deletions) Delete(ctx context.Context, name string, opts ...images.DeleteOpt) error {
	var o images.DeleteOptions
	for _, opt := range opts {
		if err := opt(ctx, &o); err != nil {
			return err
		}
	}
	if d.before != nil {
		d.before(name)
	}
	d.asked = append(d.asked, o)
	record, ok := d.records[name]
	if !ok || o.Target != nil && o.Target.Digest != record.Target.Digest {
		return errdefs.ErrNotFound
	}
	return d.fakeRecords.Delete(ctx, name)
}

func pruning(t *testing.T, records ...images.Image) (*session, *deletions) {
	t.Helper()
	d := &deletions{fakeRecords: &fakeRecords{records: map[string]images.Image{}}}
	for _, r := range records {
		d.records[r.Name] = r
	}
	c := sessionOn(t, d.fakeRecords)
	var err error
	c.client, err = containerd.New("", containerd.WithServices(containerd.WithImageStore(d)))
	require.NoError(t, err)
	return c, d
}

func (d *deletions) left() []string { return slices.Sorted(maps.Keys(d.records)) }

func seen(records ...images.Image) (all []node.HeldImage) {
	for _, r := range records {
		all = append(all, node.HeldImage{Name: r.Name, Digest: r.Target.Digest})
	}
	return all
}

func TestPruneRemovesWhatWasSeen(t *testing.T) {
	t.Parallel()
	other := digest.FromString("other image")
	a, b, c := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest), record("suse.com/c:1", someDigest)
	moved, gone := record("suse.com/moved:1", other), record("suse.com/gone:1", someDigest)
	wasMoved := record("suse.com/moved:1", someDigest)
	s, d := pruning(t, a, b, c, moved)
	require.NoError(t, s.prune(t.Context(), seen(a, wasMoved, b, gone, wasMoved)))
	assert.Equal(t, []string{c.Name, moved.Name}, d.left())
	require.Len(t, d.asked, 2, "nothing else was asked for")
	for n, o := range d.asked {
		assert.Equal(t, someDigest, o.Target.Digest)
		assert.Equal(t, n == len(d.asked)-1, o.Synchronous, "garbage is collected once, at the end")
	}
	require.NoError(t, s.prune(t.Context(), nil))
	assert.Len(t, d.asked, 2)
}

// A pull may come between check and deletion: servers that support conditions detect it.
func TestPruneKeepsNewlyPulledTags(t *testing.T) {
	t.Parallel()
	a, b := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest)
	s, d := pruning(t, a, b)
	d.before = func(string) { d.records[a.Name] = record(a.Name, digest.FromString("pulled")) }
	require.NoError(t, s.prune(t.Context(), seen(a, b)))
	assert.Equal(t, []string{a.Name}, d.left())

	s, d = pruning(t, a, b)
	d.before = func(name string) { delete(d.records, name) }
	require.NoError(t, s.prune(t.Context(), seen(a, b)), "removed by others already")
}

func TestPruneErrors(t *testing.T) {
	t.Parallel()
	a, b := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest)
	s, d := pruning(t, a, b)
	d.broken = a.Name
	err := s.prune(t.Context(), seen(a, b))
	require.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "image suse.com/a:1: broken")
	assert.Equal(t, []string{a.Name, b.Name}, d.left())

	s, d = pruning(t, a)
	d.unread = errBroken
	err = s.prune(t.Context(), seen(a))
	require.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "image suse.com/a:1: broken")
	assert.Equal(t, []string{a.Name}, d.left())
}
