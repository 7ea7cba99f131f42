// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

var _ ownhost.Hosts = (*Registry)(nil)

// isOwn reports whether a host is the node's own. It is never asked: it answers from what the
// agent told it.
func isOwn(h docker.RegistryHost) bool { return ownhost.Is(h.Scheme, h.Host) }

// Position is where the own host stands among the hosts that may say what a tag names. containerd reads hosts.toml with
// each pull, so a change counts at once.
func (r *Registry) Position(registry string) ownhost.Position {
	all, err := r.hosts.Now(registry)
	if err != nil {
		return ownhost.Off
	}
	var urls []string
	for _, h := range all {
		if h.Capabilities.Has(mayResolve) {
			urls = append(urls, h.Scheme+"://"+h.Host)
		}
	}
	return ownhost.PositionIn(urls)
}

// Private reports whether a host answered the last request for a repository with a login.
func (r *Registry) Private(repository string) (private, known bool) {
	is, known := r.private.Load(repository)
	private, _ = is.(bool)
	return private, known
}
