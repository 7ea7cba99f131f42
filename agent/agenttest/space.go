// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
)

// Filesystem implements node.Pods.
func (n *Node) Filesystem(context.Context) (policy.Filesystem, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk, n.Unmeasured
}

// SetDisk sets the size of the image filesystem and its free space, in bytes.
func (n *Node) SetDisk(size, free int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disk.Size, n.disk.Free = size, free
}

// Hold gives a digest a name in the image store: another client pulled it.
func (n *Node) Hold(name string, d digest.Digest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records[name] = d
}

// Prune implements node.Images.
func (n *Node) Prune(_ context.Context, gone []node.HeldImage) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range gone {
		if n.records[h.Name] != h.Digest {
			continue
		}
		if n.uses(h.Digest) {
			n.prunedInUse = append(n.prunedInUse, h.Name)
		}
		delete(n.records, h.Name)
		delete(n.staged, h.Name)
	}
	return nil
}

// PrunedInUse returns the records that were pruned while a container used them.
func (n *Node) PrunedInUse() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.prunedInUse
}

func (n *Node) uses(d digest.Digest) bool {
	if slices.Contains(n.Others, n.config(d)) {
		return true
	}
	for _, p := range n.pods {
		for _, c := range p.containers {
			if slices.Contains(c.Digests, d) {
				return true
			}
		}
	}
	return false
}

// repositoryOf returns the repository of a staged name.
func repositoryOf(name string) string {
	if repository, _, ok := strings.Cut(name, "@"); ok {
		return repository
	}
	return name[:strings.LastIndex(name, ":")]
}
