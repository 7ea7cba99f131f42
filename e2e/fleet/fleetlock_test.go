// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

// lockServer serves the FleetLock protocol over an etcd.
func lockServer(t *testing.T, store fleetserver.Store) string {
	t.Helper()
	s := httptest.NewServer(fleetserver.Server{Etcd: store})
	t.Cleanup(s.Close)
	return s.URL
}

func lockOf(t *testing.T, url, id string) fleet.Locker {
	t.Helper()
	c, err := fleetlock.New(fleetlock.Options{URL: url, Group: "masters", ID: id, Version: "test", Timeout: story.Ready})
	require.NoError(t, err)
	return c
}

// The client with a real server over a real etcd, with the port's conformance tests; then without the leader, and
// without a quorum.
func TestFleetLockOverEtcd(t *testing.T) {
	t.Parallel()
	cluster := story.StartEtcd(t)
	url := lockServer(t, cluster.Store())
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return lockOf(t, url, id) })

	a, b := lockOf(t, url, "a"), lockOf(t, url, "b")
	_, err := a.Lock(t.Context())
	require.NoError(t, err)
	leader := cluster.Leader()
	leader.Kill()
	node.Eventually(t, "two members go on", story.Ready, func() error {
		_, err = b.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, "b must not get it")
		if e.Kind != "failed_lock_semaphore_full" {
			return err
		}
		require.Len(t, e.Answer.Holders, 1)
		require.Equal(t, "a", e.Answer.Holders[0].ID)
		return nil
	})
	_, err = a.Lock(t.Context())
	require.NoError(t, err, "a dead leader takes no lock away")

	for _, m := range cluster.Members {
		if m.Process != nil {
			m.Kill()
			break
		}
	}
	_, err = a.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, http.StatusServiceUnavailable, e.Status, "one of three says nothing")
	require.ErrorIs(t, a.Unlock(t.Context()), release.ErrHeld)

	for _, m := range cluster.Members {
		if m.Process == nil {
			cluster.Start(m)
		}
	}
	for _, m := range cluster.Members {
		cluster.AwaitHealth(m)
	}
	_, err = b.Lock(t.Context())
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Answer.Holders, 1)
	assert.Equal(t, "a", e.Answer.Holders[0].ID, "it has the lock although everything was down meanwhile")
	require.NoError(t, a.Unlock(t.Context()))
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
}
