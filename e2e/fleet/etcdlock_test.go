// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	rig "github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/etcdlock"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// keyOf returns the lock in etcd of a node whose API server knows these members, in order.
func keyOf(t *testing.T, id string, members ...*story.EtcdMember) *etcdlock.Client {
	t.Helper()
	return keyIn(t, id, controlPlanePod("kube-apiserver", []string{"--etcd-servers=" + urlsOf(members...)}))
}

func urlsOf(members ...*story.EtcdMember) string {
	var urls []string
	for _, m := range members {
		urls = append(urls, m.Client)
	}
	return strings.Join(urls, ",")
}

// keyIn returns the lock in the etcd of a node's pod manifests.
func keyIn(t *testing.T, id string, files ...node.PodFile) *etcdlock.Client {
	t.Helper()
	c, err := etcdlock.New(etcdlock.Options{
		Etcd: func(context.Context) (etcdlock.Ask, error) { return quorum.Control{}.Etcd(files) },
		Node: id, Machine: "machine of " + id, Timeout: story.Ready, Patience: time.Second,
	})
	require.NoError(t, err)
	return c
}

// The lock in a key of a real etcd, with the port's conformance tests; then what people do to the key, without the
// leader, and without a quorum.
func TestLockInEtcd(t *testing.T) {
	t.Parallel()
	cluster := story.StartEtcd(t)
	all := cluster.Members
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return keyOf(t, id, all...) })

	a, b := keyOf(t, "node-a", all...), keyOf(t, "node-b", all[2], all[1], all[0])
	_, err := a.Lock(t.Context())
	require.NoError(t, err)
	refused := func(want string) {
		t.Helper()
		_, err := b.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e)
		require.True(t, e.IsTaken(), "%v", err)
		require.ErrorContains(t, err, want)
	}
	refused("etcd key " + etcdlock.Key + ": held by node-a since ")

	// The page's command frees it, as lock show says, and a person holds the fleet.
	page := registrytest.Text(t, story.Checkout(t)+"/docs/fleets.md")
	key := regexp.MustCompile(`(?s)-- etcdctl .*? del (\S+)\n`).FindStringSubmatch(page)
	require.NotNil(t, key)
	assert.Equal(t, "etcdctl del "+key[1], (&fleet.LockStatus{Etcd: etcdlock.Key}).FreeCommand())
	require.NoError(t, cluster.Store().Delete(t.Context(), key[1]))
	require.ErrorIs(t, a.Unlock(t.Context()), fleet.ErrLost)
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Unlock(t.Context()))
	_, version, err := cluster.Store().Get(t.Context(), etcdlock.Key)
	require.NoError(t, err)
	_, err = cluster.Store().Put(t.Context(), etcdlock.Key, []byte("Alice moves the cluster\n"), version)
	require.NoError(t, err)
	refused(": held by Alice moves the cluster")
	require.NoError(t, cluster.Store().Delete(t.Context(), etcdlock.Key))

	_, err = a.Lock(t.Context())
	require.NoError(t, err)
	leader := cluster.Leader()
	leader.Kill()
	rig.Eventually(t, "two members go on", story.Ready, func() error {
		_, err := b.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, "b must not get it")
		if !e.IsTaken() {
			return err
		}
		return nil
	})
	for _, m := range all {
		if m.Process != nil {
			m.Kill()
			break
		}
	}
	_, err = a.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	require.Error(t, e.Err, "one of three says nothing")
	for _, m := range all {
		if m.Process == nil {
			cluster.Start(m)
		}
	}
	for _, m := range all {
		cluster.AwaitHealth(m)
	}
	refused(": held by node-a since ")
	require.NoError(t, a.Unlock(t.Context()))
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
}

// A stacked member finds etcd in its own pod manifest, and a node with an external etcd in its API server's: with TLS and
// client certificates both have one lock.
func TestLockInEtcdWithTLS(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	flags := tlsFlags(ca, cert, key)
	cluster := story.StartEtcd(t, append(flags, "--client-cert-auth=true")...)
	stacked := keyIn(t, "node-a", etcdPod(cluster.Members[0], false, flags)...)
	external := keyIn(t, "node-b", controlPlanePod("kube-apiserver", []string{
		"--etcd-servers=" + urlsOf(cluster.Members...), "--etcd-cafile=" + ca, "--etcd-certfile=" + cert, "--etcd-keyfile=" + key,
	}))
	_, err := stacked.Lock(t.Context())
	require.NoError(t, err)
	_, err = external.Lock(t.Context())
	require.ErrorContains(t, err, "held by node-a")
	cluster.Members[0].Kill()
	var h *fleet.LockHolder
	rig.Eventually(t, "two members go on", story.Ready, func() error {
		h, err = external.Read(t.Context())
		return err
	})
	assert.Equal(t, "node-a", h.ID)
	require.ErrorContains(t, stacked.Unlock(t.Context()), "connection refused", "it knows its own member only")
	cluster.Start(cluster.Members[0])
	rig.Eventually(t, "it is released", story.Ready, func() error { return stacked.Unlock(t.Context()) })
	_, err = external.Lock(t.Context())
	require.NoError(t, err)

	without := keyIn(t, "node-c", controlPlanePod("kube-apiserver", []string{
		"--etcd-servers=" + urlsOf(cluster.Members...), "--etcd-cafile=" + ca,
	}))
	_, err = without.Lock(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("etcd key %s: %s: ", etcdlock.Key, strings.TrimPrefix(cluster.Members[0].Client, "https://")))
}
