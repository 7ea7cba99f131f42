// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Fleet is a lock server in memory for nodes that restart one after another. The zero value has one slot. It is safe
// for concurrent use.
type Fleet struct {
	// OnLock, if set, is called for each request with the node's id. The node gets its error: a *fleet.LockError as it
	// is, any other in one. If lost is true, the lock was granted before the error.
	OnLock func(id string) (lost bool, err error)
	// OnUnlock, if set, may fail the unlock.
	OnUnlock func(id string) error
	Slots    int
	Silent   bool // answers do not name holders

	mu      sync.Mutex
	holders []string
	locks   int
	unlocks int
	most    int
}

// Holders returns the ids of the nodes that hold the lock.
func (f *Fleet) Holders() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.holders)
}

// Give grants the lock to a node; Drop removes it.
func (f *Fleet) Give(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(id)
}

// Drop removes a lock without the node's knowledge.
func (f *Fleet) Drop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holders = slices.DeleteFunc(f.holders, func(h string) bool { return h == id })
}

// Requests returns the numbers of lock and unlock requests.
func (f *Fleet) Requests() (locks, unlocks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.locks, f.unlocks
}

// Most returns the largest number of nodes that held the lock at once.
func (f *Fleet) Most() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func (f *Fleet) add(id string) {
	if !slices.Contains(f.holders, id) {
		f.holders = append(f.holders, id)
	}
	f.most = max(f.most, len(f.holders))
}

func (f *Fleet) answer() fleet.LockAnswer {
	var out fleet.LockAnswer
	if f.Silent {
		return out
	}
	for _, h := range f.holders {
		out.Holders = append(out.Holders, fleet.LockHolder{ID: h})
	}
	out.Slots = max(f.Slots, 1)
	return out
}

// Node returns the lock as one node sees it.
func (f *Fleet) Node(id string) fleet.Locker { return fleetNode{f, id} }

type fleetNode struct {
	fleet *Fleet
	id    string
}

// Lock implements fleet.Locker.
func (n fleetNode) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	f := n.fleet
	lost, err := false, ctx.Err()
	if f.OnLock != nil && err == nil {
		lost, err = f.OnLock(n.id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks++
	if err != nil && !lost {
		if e, is := errors.AsType[*fleet.LockError](err); is {
			return fleet.LockAnswer{}, e
		}
		return fleet.LockAnswer{}, &fleet.LockError{Server: "fake", Err: err}
	}
	if !slices.Contains(f.holders, n.id) && len(f.holders) >= max(f.Slots, 1) {
		return f.answer(), &fleet.LockError{
			Server: "fake", Status: 409, Kind: "locked", Value: "all slots are taken", Answer: f.answer(),
		}
	}
	retained := !f.Silent && slices.Contains(f.holders, n.id)
	f.add(n.id)
	if lost {
		return fleet.LockAnswer{}, &fleet.LockError{Server: "fake", Err: err}
	}
	answer := f.answer()
	answer.Retained = retained
	return answer, nil
}

// Unlock implements fleet.Locker.
func (n fleetNode) Unlock(ctx context.Context) error {
	f := n.fleet
	err := ctx.Err()
	if f.OnUnlock != nil && err == nil {
		err = f.OnUnlock(n.id)
	}
	f.mu.Lock()
	f.unlocks++
	f.mu.Unlock()
	if err != nil {
		return &fleet.LockError{Server: "fake", Err: err}
	}
	f.Drop(n.id)
	return nil
}

// TestFleetLock asserts the behavior of a fleet.Locker. node returns the lock as one node sees it, of a server with one
// slot.
func TestFleetLock(t *testing.T, node func(id string) fleet.Locker) {
	t.Helper()
	a, b := node("a"), node("b")
	lock := func(l fleet.Locker, want bool) {
		t.Helper()
		answer, err := l.Lock(t.Context())
		if want {
			require.NoError(t, err)
			return
		}
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, release.ErrHeld)
		assert.True(t, e.IsTaken())
		if len(answer.Holders) > 0 { // if the server names them
			assert.Equal(t, "a", answer.Holders[0].ID)
		}
	}
	notHeld := func(l fleet.Locker, why string) {
		t.Helper()
		if err := l.Unlock(t.Context()); !errors.Is(err, fleet.ErrLost) {
			require.NoError(t, err, why)
		}
	}
	notHeld(b, "it is free")
	lock(a, true)
	lock(a, true) // it already holds the lock
	lock(b, false)
	notHeld(b, "the lock is not b's")
	lock(b, false)
	require.NoError(t, a.Unlock(t.Context()))
	notHeld(a, "it is already released")
	lock(b, true)
	require.NoError(t, b.Unlock(t.Context()))
	lock(a, true)
	require.NoError(t, a.Unlock(t.Context()))
}
