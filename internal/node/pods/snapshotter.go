// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"os"
	"sync"
)

// CachedSnapshotter returns a function that returns Snapshotter's result. It asks CRI again only after a restart of
// containerd, because each observation of the node needs the answer.
func (r *Runtime) CachedSnapshotter() func(context.Context) (string, error) {
	return UntilRestart(r.socket, r.Snapshotter)
}

// UntilRestart returns a function that returns the last answer of containerd until it restarts, which creates a new
// socket. An error is not kept.
func UntilRestart[T any](socket string, ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	return (&answer[T]{socket: socket, ask: ask}).get
}

type answer[T any] struct {
	socket string
	ask    func(context.Context) (T, error)

	mu    sync.Mutex
	from  os.FileInfo // the socket that answered
	value T
}

func (c *answer[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := os.Stat(c.socket)
	if err == nil && c.from != nil && os.SameFile(c.from, now) && c.from.ModTime().Equal(now.ModTime()) {
		return c.value, nil
	}
	value, err := c.ask(ctx)
	if err != nil {
		return value, err
	}
	c.from, c.value = now, value
	return value, nil
}
