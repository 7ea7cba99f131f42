// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Hosts are the hosts.toml files of a node in memory. They implement ownhost.Hosts.
type Hosts struct {
	mu        sync.Mutex
	positions map[string]ownhost.Position
	private   map[string]bool
}

// SetPosition puts the own host among the hosts of a registry.
func (h *Hosts) SetPosition(registry string, p ownhost.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.positions == nil {
		h.positions = map[string]ownhost.Position{}
	}
	h.positions[registry] = p
}

// SetPrivate lets a repository want a login.
func (h *Hosts) SetPrivate(repository string, private bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.private == nil {
		h.private = map[string]bool{}
	}
	h.private[repository] = private
}

// Position answers as ownhost.Hosts.
func (h *Hosts) Position(registry string) ownhost.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.positions[registry]
}

// Private answers as ownhost.Hosts.
func (h *Hosts) Private(repository string) (private, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	private, known = h.private[repository]
	return private, known
}

// ownHost is what containerd gets from the node's own host.
type ownHost struct {
	store *OwnHost
	hosts *Hosts
}

// tag answers for a tag; false: the own host does not stand there, or does not know it.
func (o *ownHost) tag(ref release.Reference, at ownhost.Position) (digest.Digest, bool) {
	return o.find(ref.Repository, at, func(e ownhost.Entry) bool { return e.Reference() == ref })
}

func (o *ownHost) find(repository string, at ownhost.Position, is func(ownhost.Entry) bool) (digest.Digest, bool) {
	if o == nil || o.store.Down != nil || o.hosts.Position(ownhost.RegistryOf(repository)) != at {
		return "", false
	}
	for _, e := range o.store.Table().Entries {
		if is(e) {
			return e.Digest, true
		}
	}
	return "", false
}

// digest reports whether it answers for a digest, wherever it stands.
func (o *ownHost) digest(repository string, d digest.Digest) bool {
	for _, at := range []ownhost.Position{ownhost.Gate, ownhost.Fallback} {
		_, ok := o.find(repository, at, func(e ownhost.Entry) bool {
			return e.Digest == d && e.Reference().Repository == repository
		})
		if ok {
			return true
		}
	}
	return false
}
