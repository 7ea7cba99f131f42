// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"sync"
)

// keyed are locks by name, for containerd's unpacker: of the pulls that want one
// layer at the same time the first fetches and unpacks it, and the others find
// it done. Without them a second pull asks for the layer's lock every two
// seconds, and unpacks it once more, for nothing.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*lock // those in use
}

type lock struct {
	taken chan struct{} // has one element while it is locked
	users int           // that hold it or wait for it
}

func newKeyed() *keyed { return &keyed{locks: map[string]*lock{}} }

// Lock waits until the key is free or ctx ends.
func (k *keyed) Lock(ctx context.Context, key string) error {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		l = &lock{taken: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		k.leave(key, l)
		return context.Cause(ctx)
	}
}

// Unlock frees a key that was locked.
func (k *keyed) Unlock(key string) {
	k.mu.Lock()
	l := k.locks[key]
	k.mu.Unlock()
	<-l.taken
	k.leave(key, l)
}

func (k *keyed) leave(key string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
