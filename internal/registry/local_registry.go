// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

var _ localregistry.Hosts = (*Registry)(nil)

// isOwn reports whether a host is the node's local registry. It is never asked, because its answers come from the
// agent.
func isOwn(h docker.RegistryHost) bool { return localregistry.Is(h.Scheme, h.Host) }

// Position returns the local registry's position among the hosts that may resolve tags. containerd reads hosts.toml for
// each pull, so a change counts at once.
func (r *Registry) Position(registry string) localregistry.Position {
	all, err := r.hosts.Now(registry)
	if err != nil {
		return localregistry.Off
	}
	var urls []string
	for _, h := range all {
		if h.Capabilities.Has(mayResolve) {
			urls = append(urls, h.Scheme+"://"+h.Host)
		}
	}
	return localregistry.PositionIn(urls)
}

// Private reports whether the last request for a repository needed a login.
func (r *Registry) Private(repository string) (private, known bool) {
	is, known := r.private.Load(repository)
	private, _ = is.(bool)
	return private, known
}
