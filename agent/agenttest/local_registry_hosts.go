// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Hosts are the hosts.toml files of a node in memory. They implement localregistry.Hosts.
type Hosts struct {
	mu        sync.Mutex
	positions map[string]localregistry.Position
	private   map[string]bool
}

// SetPosition puts the local registry into hosts.toml of a registry.
func (h *Hosts) SetPosition(registry string, p localregistry.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.positions == nil {
		h.positions = map[string]localregistry.Position{}
	}
	h.positions[registry] = p
}

// SetPrivate makes a repository require a login.
func (h *Hosts) SetPrivate(repository string, private bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.private == nil {
		h.private = map[string]bool{}
	}
	h.private[repository] = private
}

// Position implements localregistry.Hosts.
func (h *Hosts) Position(registry string) localregistry.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.positions[registry]
}

// Private implements localregistry.Hosts.
func (h *Hosts) Private(repository string) (private, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	private, known = h.private[repository]
	return private, known
}

// localRegistry answers containerd as the node's local registry.
type localRegistry struct {
	store *LocalRegistry
	hosts *Hosts
}

// tag answers for a tag; false if the local registry is not at this position, or does not know the tag.
func (o *localRegistry) tag(ref release.Reference, at localregistry.Position) (digest.Digest, bool) {
	return o.find(ref.Repository, at, func(e localregistry.Entry) bool { return localregistry.ReferenceOf(e) == ref })
}

func (o *localRegistry) find(
	repository string, at localregistry.Position, is func(localregistry.Entry) bool,
) (digest.Digest, bool) {
	if o == nil || o.store.Down != nil || o.hosts.Position(localregistry.RegistryOf(repository)) != at {
		return "", false
	}
	for _, e := range o.store.Table().Entries {
		if is(e) {
			return digest.Digest(e.Digest), true
		}
	}
	return "", false
}

// digest reports whether it answers for a digest, at any position.
func (o *localRegistry) digest(repository string, d digest.Digest) bool {
	for _, at := range []localregistry.Position{localregistry.Gate, localregistry.Fallback} {
		_, ok := o.find(repository, at, func(e localregistry.Entry) bool {
			return e.Digest == d.String() && localregistry.ReferenceOf(e).Repository == repository
		})
		if ok {
			return true
		}
	}
	return false
}
