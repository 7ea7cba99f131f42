// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"sync"
)

// lanes let a bounded number of requests at a time through to each host.
// http.Transport bounds connections, too, but gives one that is free to whoever
// waits for it before anybody could read the answer that came through it: a
// whole queue would be sent after the first 429.
type lanes struct {
	width int
	mu    sync.Mutex
	hosts map[string]*lane // those in use
}

type lane struct {
	slots chan struct{}
	users int // that hold a slot or wait for one
}

// enter waits for a slot of a host until ctx ends. The slot is free again when
// leave is called.
func (l *lanes) enter(ctx context.Context, host string) (leave func(), err error) {
	l.mu.Lock()
	at := l.hosts[host]
	if at == nil {
		at = &lane{slots: make(chan struct{}, l.width)}
		l.hosts[host] = at
	}
	at.users++
	l.mu.Unlock()
	select {
	case at.slots <- struct{}{}:
		return sync.OnceFunc(func() {
			<-at.slots
			l.left(host, at)
		}), nil
	case <-ctx.Done():
		l.left(host, at)
		return nil, context.Cause(ctx)
	}
}

func (l *lanes) left(host string, at *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(l.hosts, host)
	}
}
