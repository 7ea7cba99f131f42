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
	return (&snapshotterCache{socket: r.socket, ask: r.Snapshotter}).get
}

// snapshotterCache keeps an answer of CRI until containerd restarts, which creates a new socket.
type snapshotterCache struct {
	socket string
	ask    func(context.Context) (string, error)

	mu    sync.Mutex
	from  os.FileInfo // the socket that answered
	value string
}

func (c *snapshotterCache) get(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := os.Stat(c.socket)
	if err == nil && c.from != nil && os.SameFile(c.from, now) && c.from.ModTime().Equal(now.ModTime()) {
		return c.value, nil
	}
	value, err := c.ask(ctx)
	if err != nil {
		return "", err
	}
	c.from, c.value = now, value
	return value, nil
}
