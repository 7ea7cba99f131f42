// SPDX-License-Identifier: Apache-2.0

package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/etcdlock"
)

// as returns the client of a node.
func as(t *testing.T, name string, members []*member, set ...func(*etcdlock.Options)) *etcdlock.Client {
	t.Helper()
	o := etcdlock.Options{
		Etcd: etcd(t, members...), Node: name, Machine: "machine of " + name, Timeout: time.Minute, Patience: time.Nanosecond,
	}
	for _, f := range set {
		f(&o)
	}
	c, err := etcdlock.New(o)
	require.NoError(t, err)
	return c
}

func TestKey(t *testing.T) {
	t.Parallel()
	_, members := start(t, 1)
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return as(t, id, members) })
}

// The key names the holder and since when; a free lock is an empty value.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	s, members := start(t, 1)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	c := as(t, "node-1", members, func(o *etcdlock.Options) { o.Now = func() time.Time { return now } })
	h, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, h, "there is none")
	answer, err := c.Lock(t.Context())
	require.NoError(t, err)
	holder := fleet.LockHolder{ID: "node-1", Since: now.UTC()}
	assert.Equal(t, fleet.LockAnswer{Holders: []fleet.LockHolder{holder}, Slots: 1}, answer)
	const want = `{"holder":"node-1","machine":"machine of node-1","since":"2026-05-01T11:00:00Z"}`
	assert.JSONEq(t, want, s.holds())
	assert.Equal(t, []string{"Range", "Range", "Txn"}, s.asked)
	before := s.changed
	now = now.Add(time.Hour)
	answer, err = c.Lock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fleet.LockAnswer{Holders: []fleet.LockHolder{holder}, Slots: 1, Retained: true}, answer)
	assert.JSONEq(t, want, s.holds())
	assert.Greater(t, s.changed, before, "it was written, not only read")
	h, err = as(t, "node-2", members).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &holder, h)
	require.NoError(t, c.Unlock(t.Context()))
	assert.Empty(t, s.holds())
	h, err = c.Read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, h)
}

// What a person does to the key.
func TestEditedKey(t *testing.T) {
	t.Parallel()
	const lost = "this node does not hold the lock: etcd key image-update-agent/lock: "
	for title, c := range map[string]struct {
		put          string // of a key that the node holds; deleted: it is deleted
		lock, unlock string // errors
	}{
		"deleted":            {"deleted", "", lost + "somebody deleted it"},
		"emptied":            {"", "", lost + "it has no holder"},
		"emptied by echo":    {" \n", "", lost + "it has no holder"},
		"given to a node":    {`{"holder": "node-2", "since": "2026-05-01T12:00:00Z"}`, ": held by node-2 since 2026-05-01T12:00:00Z", lost + "its holder is node-2"},
		"the name alone":     {`{"holder": "node-1"}`, ": held by another machine with the name of this node (holder node-1)", lost + "its holder is node-1"},
		"the name as a text": {"node-1", ": held by node-1", lost + "its holder is node-1"},
		"a person's text":    {"Alice: maintenance!\x1b[2J", ": held by Alice: maintenance! [2J", lost + "its holder is Alice"},
		"no holder":          {`{"machine": "x"}`, `: held by {"machine": "x"}`, lost + "its holder is {"},
		"an empty holder":    {`{"holder": ""}`, `: held by {"holder": ""}`, lost + "its holder is {"},
		"null":               {"null", ": held by null", lost + "its holder is null"},
		"a number":           {`{"holder": 1}`, ": held by {", lost + "its holder is {"},
		"a wrong time":       {`{"holder": "node-2", "since": "soon"}`, ": held by {", lost + "its holder is {"},
		"a long text":        {strings.Repeat("x", 4000), ": held by " + strings.Repeat("x", 125) + "…", lost},
		"too large":          {strings.Repeat("x", 1<<20), "gRPC code ResourceExhausted", "gRPC code ResourceExhausted"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s, members := start(t, 1)
			n := as(t, "node-1", members)
			lock := func() error {
				_, err := n.Lock(t.Context())
				return err
			}
			for want, do := range map[string]func() error{"lock: " + c.lock: lock, "unlock: " + c.unlock: func() error { return n.Unlock(t.Context()) }} {
				s.del()
				require.NoError(t, lock())
				if s.put(c.put); c.put == "deleted" {
					s.del()
				}
				before := s.holds()
				err := do()
				_, want, _ = strings.Cut(want, ": ")
				if want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, want)
				assert.Equal(t, strings.TrimSpace(before), s.holds(), "it stays")
			}
		})
	}
}

// Another machine with the same name does not have the lock.
func TestTwoMachinesWithOneName(t *testing.T) {
	t.Parallel()
	s, members := start(t, 1)
	n := as(t, "node-1", members)
	clone := as(t, "node-1", members, func(o *etcdlock.Options) { o.Machine = "another" })
	_, err := n.Lock(t.Context())
	require.NoError(t, err)
	_, err = clone.Lock(t.Context())
	require.ErrorContains(t, err, "held by another machine with the name of this node")
	require.ErrorIs(t, clone.Unlock(t.Context()), fleet.ErrLost)
	assert.Contains(t, s.holds(), "machine of node-1")
}

// Of two nodes that read a free key, one gets it.
func TestOthersAreFaster(t *testing.T) {
	t.Parallel()
	s, members := start(t, 1)
	faster := true
	s.fault = func(method string) fault {
		if faster && method == "Txn" {
			faster = false
			s.put(`{"holder": "b", "machine": "machine of b"}`)
		}
		return none
	}
	_, err := as(t, "a", members).Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.IsTaken())
	assert.Equal(t, "b", e.Answer.Holders[0].ID)

	s.fault = func(method string) fault {
		if method == "Txn" {
			s.put("")
		}
		return none
	}
	s.asked = nil
	_, err = as(t, "b", members).Lock(t.Context())
	require.EqualError(t, err, "etcd key image-update-agent/lock: others changed it 5 times in a row")
	require.ErrorIs(t, err, release.ErrHeld)
	assert.Len(t, s.asked, 10)
}

// once returns a fault of the next request of a kind.
func once(method string, f fault) func(string) fault {
	done := false
	return func(m string) fault {
		if done || m != method {
			return none
		}
		done = true
		return f
	}
}

// An answer that is lost after the request was executed.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s, members := start(t, 1)
	n := as(t, "node-1", members)
	for method, unsent := range map[string]bool{"Range": true, "Txn": false} {
		s.del()
		s.fault = once(method, lost)
		_, err := n.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, method)
		require.Error(t, e.Err)
		assert.Equal(t, unsent, e.Unsent)
		assert.NotContains(t, err.Error(), "SECRET")
		assert.Equal(t, unsent, s.holds() == "", method)
	}
	s.put("")
	s.fault = once("Txn", lost)
	_, err := n.Lock(t.Context())
	require.Error(t, err)
	assert.Contains(t, s.holds(), "node-1")
	answer, err := n.Lock(t.Context())
	require.NoError(t, err, "it enters again")
	assert.True(t, answer.Retained)
	s.fault = once("Txn", lost)
	require.Error(t, n.Unlock(t.Context()))
	assert.Empty(t, s.holds(), "it is released")
	require.ErrorIs(t, n.Unlock(t.Context()), fleet.ErrLost)

	// With time, Unlock repeats itself, and then knows that the first request was a release.
	patient := as(t, "node-1", members, func(o *etcdlock.Options) { o.Patience = time.Minute })
	_, err = patient.Lock(t.Context())
	require.NoError(t, err)
	s.fault = once("Txn", lost)
	require.NoError(t, patient.Unlock(t.Context()))
	s.fault = func(string) fault { return denied }
	_, err = n.Lock(t.Context())
	require.ErrorContains(t, err, ": gRPC code PermissionDenied")
	assert.NotContains(t, err.Error(), "SECRET")
}

// A request that is executed after the node has given up changes nothing, once a later Lock or Unlock has succeeded.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	s, members := start(t, 1)
	n, other := as(t, "node-1", members), as(t, "node-2", members)
	for _, free := range []func(){s.del, func() { s.put("") }} { // a late Lock
		free()
		s.fault = once("Txn", late)
		_, err := n.Lock(t.Context())
		require.Error(t, err)
		require.ErrorIs(t, n.Unlock(t.Context()), fleet.ErrLost)
		s.arrive()
		assert.Empty(t, s.holds(), "nobody has it")
	}
	_, err := n.Lock(t.Context()) // a late Unlock
	require.NoError(t, err)
	s.fault = once("Txn", late)
	require.Error(t, n.Unlock(t.Context()))
	_, err = n.Lock(t.Context())
	require.NoError(t, err)
	s.arrive()
	_, err = other.Lock(t.Context())
	require.ErrorContains(t, err, "held by node-1")
}

// Without an answer of one member, the next one is asked.
func TestAnotherMember(t *testing.T) {
	t.Parallel()
	s, members := start(t, 3)
	n := as(t, "node-1", members)
	members[0].stop()
	s.fault = once("Txn", lost)
	answer, err := n.Lock(t.Context())
	require.NoError(t, err)
	assert.False(t, answer.Retained, "this call has taken it, at the second member")
	assert.Equal(t, []string{"Range", "Txn", "Range", "Txn"}, s.asked)
	s.fault = once("Txn", lost)
	require.NoError(t, n.Unlock(t.Context()))
	assert.Empty(t, s.holds())
	for _, m := range members {
		m.stop()
	}
	_, err = n.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unsent)
	host := func(m *member) string { return strings.TrimPrefix(m.url, "http://") }
	require.EqualError(t, err, "etcd key image-update-agent/lock: "+host(members[0])+": connection refused; "+
		host(members[1])+": connection refused; "+host(members[2])+": connection refused")
	_, err = n.Read(t.Context())
	require.ErrorAs(t, err, &e)
}

// A node that does not know its etcd does not wait for it.
func TestUnknownEtcd(t *testing.T) {
	t.Parallel()
	n := as(t, "node-1", nil, func(o *etcdlock.Options) {
		o.Etcd = func(context.Context) (etcdlock.Ask, error) { return nil, errors.New("no pod manifest") }
		o.Patience = time.Hour
	})
	_, err := n.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unsent)
	require.EqualError(t, err, "etcd key image-update-agent/lock: no pod manifest")
	require.ErrorContains(t, n.Unlock(t.Context()), "no pod manifest", "it does not wait")
	for _, o := range []etcdlock.Options{{Node: "a"}, {Machine: "a"}} {
		_, err = etcdlock.New(o)
		require.ErrorContains(t, err, "want the name of the node")
	}
}
