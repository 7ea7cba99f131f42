// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// pull is a pull through CRI: it names the image with the tag.
func (n *Node) pull(ref release.Reference) (digest.Digest, error) {
	if d, ok := n.localRegistry.tag(ref, localregistry.Gate); ok && n.holds(d) {
		n.named(ref, d)
		return d, nil
	}
	d, err := n.ask(ref)
	if err != nil {
		var ok bool
		if d, ok = n.localRegistry.tag(ref, localregistry.Fallback); !ok || !n.holds(d) {
			return "", err
		}
	}
	n.named(ref, d)
	return d, nil
}

// ask resolves a tag at the registry.
func (n *Node) ask(ref release.Reference) (digest.Digest, error) {
	n.registry.mu.Lock()
	d, ok := n.registry.tags[ref]
	_, there := n.registry.builds[ref.Repository+"@"+d.String()]
	down := n.registry.down
	n.registry.mu.Unlock()
	switch {
	case down != nil:
		return "", fmt.Errorf("pull %s: %w", ref, down)
	case !ok || !there:
		return "", fmt.Errorf("pull %s: %w", ref, release.ErrNotFound)
	}
	delete(n.lost, d)
	return d, nil
}

// named gives a pulled image the name of its tag.
func (n *Node) named(ref release.Reference, d digest.Digest) {
	n.records[ref.String()] = d
	delete(n.staged, ref.String()) // a pull by another client removes the labels
}
