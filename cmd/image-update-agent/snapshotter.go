// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/pods"
)

// snapshotterOf is the configured snapshotter, else the one that CRI says it
// uses.
func snapshotterOf(s settings, runtime *pods.Runtime) func(context.Context) (string, error) {
	if name := s.Containerd.Snapshotter; name != "" {
		return func(context.Context) (string, error) { return name, nil }
	}
	return (&remembered{socket: s.CRI.Socket, ask: runtime.Snapshotter}).get
}

// remembered is an answer of CRI that holds until containerd is started anew: it
// makes its socket anew then. Each observation of the node needs it.
type remembered struct {
	socket string
	ask    func(context.Context) (string, error)

	mu    sync.Mutex
	from  os.FileInfo // the socket that answered
	value string
}

func (r *remembered) get(ctx context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := os.Stat(r.socket)
	if err == nil && r.from != nil && os.SameFile(r.from, now) && r.from.ModTime().Equal(now.ModTime()) {
		return r.value, nil
	}
	value, err := r.ask(ctx)
	if err != nil {
		return "", err
	}
	r.from, r.value = now, value
	return value, nil
}
