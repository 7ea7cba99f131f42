// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// A second attempt reuses the lease of the first, unless that would expire too early.
func TestLeaseOfAnEarlierAttemptIsReused(t *testing.T) {
	t.Parallel()
	r := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	at := func(d time.Duration) map[string]string {
		return map[string]string{labelStage: digestName(r), labelExpire: time.Now().Add(d).UTC().Format(time.RFC3339)}
	}
	for name, is := range map[string]struct {
		labels map[string]string // nil if there is none
		taken  bool
	}{
		"none":                 {nil, false},
		"one of the last hour": {at(leaseLife - time.Hour), true},
		"one that ends soon":   {at(stageTimeout / 2), false},
		"one without an end":   {map[string]string{labelStage: digestName(r)}, false},
		"one with a riddle":    {map[string]string{labelStage: digestName(r), labelExpire: "soon"}, false},
	} {
		c, _, held := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
		if is.labels != nil {
			held.live["old"] = leases.Lease{ID: "old", Labels: is.labels}
		}
		j := newJob(r, node.StageOptions{})
		ctx, err := c.lease(t.Context(), j)
		require.NoError(t, err, name)
		id, _ := leases.FromContext(ctx)
		assert.Equal(t, is.taken, id == "old", name)
		assert.Equal(t, is.labels != nil, j.resumes, name)
		assert.Contains(t, held.live, id, name)

		j.addFetched(1)
		c.endLeases(t.Context(), j, errors.New("broken"))
		assert.Contains(t, held.live, id, "%s: what the next attempt needs", name)
		again, err := c.lease(t.Context(), newJob(r, node.StageOptions{}))
		require.NoError(t, err, name)
		second, _ := leases.FromContext(again)
		assert.Equal(t, id, second, name)
		c.endLeases(t.Context(), j, nil)
		assert.Empty(t, held.live, name)
	}
}

// A useless lease is deleted at once.
func TestUselessLeaseIsDeleted(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, fmt.Errorf("x: %w", release.ErrNoSpace), release.ErrNotFound, release.ErrPlatform} {
		c, _, held := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
		j := newJob(release.Release{Repository: "suse.com/a", Digest: someDigest}, node.StageOptions{})
		_, err := c.lease(t.Context(), j)
		require.NoError(t, err)
		j.addFetched(1)
		c.endLeases(t.Context(), j, end)
		assert.Empty(t, held.live, end)
	}
}

// leftLeases lists leases as containerd does, with the only filter that is used.
type leftLeases struct {
	*fakeLeases
	answer  error              // of List and Delete
	deletes func(leases.Lease) // called before a deletion
}

func (l *leftLeases) List(_ context.Context, filters ...string) (all []leases.Lease, err error) {
	for _, lease := range l.live {
		if _, ours := lease.Labels[labelStage]; ours || !slices.Equal(filters, []string{`labels."` + labelStage + `"`}) {
			all = append(all, lease)
		}
	}
	return all, l.answer
}

func (l *leftLeases) Delete(ctx context.Context, lease leases.Lease, opts ...leases.DeleteOpt) error {
	if l.deletes != nil {
		l.deletes(lease)
	}
	if l.answer != nil {
		return l.answer
	}
	return l.fakeLeases.Delete(ctx, lease, opts...)
}

// leasing returns a session with leases by id, each with its release; "" for a lease that is not the agent's.
func leasing(t *testing.T, refs map[string]string) (*session, *leftLeases) {
	t.Helper()
	l := &leftLeases{fakeLeases: &fakeLeases{live: map[string]leases.Lease{}}}
	for id, ref := range refs {
		lease := leases.Lease{ID: id, Labels: map[string]string{labelStage: ref}}
		if ref == "" {
			lease.Labels = map[string]string{"somebody": "else"}
		}
		l.live[id] = lease
	}
	c := sessionOn(t, &fakeRecords{})
	var err error
	c.client, err = containerd.New("", containerd.WithServices(containerd.WithLeasesService(l)))
	require.NoError(t, err)
	return c, l
}

func (l *leftLeases) left() []string { return slices.Sorted(maps.Keys(l.live)) }

func refOf(repository string, d digest.Digest) string {
	return digestName(release.Release{Repository: repository, Digest: d})
}

func TestPruneLeases(t *testing.T) {
	t.Parallel()
	other := digest.FromString("other image")
	refs := map[string]string{
		"wanted": refOf("suse.com/a", someDigest), "wanted again": refOf("suse.com/a", someDigest),
		"being staged": refOf("suse.com/busy", someDigest), "foreign": "",
		"gone": refOf("suse.com/a", other), "gone again": refOf("suse.com/a", other),
		"of another repository": refOf("suse.com/b", someDigest), "odd": "what",
	}
	c, l := leasing(t, refs)
	want := []release.Pin{{Repository: "suse.com/a", Digest: someDigest}, {Repository: "suse.com/c", Digest: other}}
	require.True(t, c.claim(refs["being staged"]))
	require.NoError(t, c.pruneLeases(t.Context(), want))
	assert.Equal(t, []string{"being staged", "foreign", "wanted", "wanted again"}, l.left())

	c.release(refs["being staged"])
	require.NoError(t, c.pruneLeases(t.Context(), nil))
	assert.Equal(t, []string{"foreign"}, l.left())
	assert.Empty(t, c.staging, "all can be staged again")
}

// A staging reuses the leases that it finds, so none may be deleted meanwhile.
func TestPruneLeasesBlocksStaging(t *testing.T) {
	t.Parallel()
	ref := refOf("suse.com/a", someDigest)
	c, l := leasing(t, map[string]string{"left": ref})
	l.deletes = func(leases.Lease) { assert.False(t, c.claim(ref), "would be staged with a lease that goes") }
	require.NoError(t, c.pruneLeases(t.Context(), nil))
	assert.Empty(t, l.left())
}

func TestPruneLeasesErrors(t *testing.T) {
	t.Parallel()
	c, l := leasing(t, nil)
	l.answer = errBroken
	assert.EqualError(t, c.pruneLeases(t.Context(), nil), "list leases: broken")

	c, l = leasing(t, map[string]string{"left": refOf("suse.com/a", someDigest)})
	l.deletes = func(leases.Lease) { l.answer = errBroken }
	assert.EqualError(t, c.pruneLeases(t.Context(), nil), "lease of suse.com/a@"+someDigest.String()+": broken")
	assert.Empty(t, c.staging, "it can be staged again")

	c, l = leasing(t, map[string]string{"left": refOf("suse.com/a", someDigest)})
	l.deletes = func(leases.Lease) { l.answer = errdefs.ErrNotFound }
	assert.NoError(t, c.pruneLeases(t.Context(), nil), "it has expired meanwhile")
}
