// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
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
