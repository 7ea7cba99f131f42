// SPDX-License-Identifier: Apache-2.0

// Package keylock has locks by key that a bounded number of callers hold at a time.
package keylock

import (
	"context"
	"sync"
)

// Locks are locks by key. Nothing is kept for a key that no caller holds or waits for.
type Locks struct {
	holders int
	mu      sync.Mutex
	byKey   map[string]*lock
}

type lock struct {
	held  chan struct{} // one element for each holder
	users int           // that hold it or wait for it
}

// New makes locks that so many callers may hold at a time for each key.
func New(holders int) *Locks { return &Locks{holders: holders, byKey: map[string]*lock{}} }

// Lock waits until the key is free or ctx ends; then it returns the cause of ctx.
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

// Unlock frees a key that was locked.
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
