// SPDX-License-Identifier: Apache-2.0

// Package keylock has locks by key with a limited number of holders.
package keylock

import (
	"context"
	"sync"
)

// Locks are locks by key. A key without holders and waiters uses no memory.
type Locks struct {
	holders int
	mu      sync.Mutex
	byKey   map[string]*lock
}

type lock struct {
	held  chan struct{} // one element per holder
	users int           // holders and waiters
}

// New returns locks with that many holders per key.
func New(holders int) *Locks { return &Locks{holders: holders, byKey: map[string]*lock{}} }

// Lock waits until the key is free. If ctx ends first, it returns the cause.
func (l *Locks) Lock(ctx context.Context, key string) error {
	l.mu.Lock()
	at := l.byKey[key]
	if at == nil {
		at = &lock{held: make(chan struct{}, l.holders)}
		l.byKey[key] = at
	}
	at.users++
	l.mu.Unlock()
	select {
	case at.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(key, at)
		return context.Cause(ctx)
	}
}

// Unlock releases a key.
func (l *Locks) Unlock(key string) {
	l.mu.Lock()
	at := l.byKey[key]
	l.mu.Unlock()
	<-at.held
	l.leave(key, at)
}

func (l *Locks) leave(key string, at *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(l.byKey, key)
	}
}
