// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Properties of each manifest of the fake.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifestSize = 512
)

// Held implements node.Images.
func (n *Node) Held(context.Context) ([]node.HeldImage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unseen != nil {
		return nil, n.unseen
	}
	var out []node.HeldImage
	for _, name := range slices.Sorted(maps.Keys(n.records)) {
		d := n.records[name]
		b := n.build(d)
		h := node.HeldImage{
			Name: name, Digest: d, Config: b.Config, Origin: b.Origin, Staged: n.staged[name], NotImage: n.pages[name],
		}
		if h.Staged {
			h.Repository = repositoryOf(name)
		}
		out = append(out, h)
	}
	for pin := range n.pins {
		out = append(out, node.HeldImage{
			Name: "pin/" + pin.Repository + "@" + pin.Digest.String(), Digest: pin.Digest, Pin: true,
			MediaType: manifestType, Size: manifestSize,
			Repository: pin.Repository, Complete: !n.lost[pin.Digest], Config: n.build(pin.Digest).Config,
			Origin: n.build(pin.Digest).Origin,
		})
	}
	slices.SortFunc(out, func(a, b node.HeldImage) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Stage implements node.Images.
func (n *Node) Stage(ctx context.Context, r release.Release, t node.StageOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.OnStage != nil {
		if err := n.OnStage(ctx, r); err != nil {
			return err
		}
	}
	n.mu.Lock()
	there := n.holds(r.Digest) && !n.lost[r.Digest]
	n.mu.Unlock()
	if !there {
		if err := n.pullFor(ctx, r, t); err != nil {
			return err
		}
	}
	n.mu.Lock()
	delete(n.lost, r.Digest)
	if name := r.StagedName(); !there || n.records[name] != r.Digest {
		n.records[name], n.staged[name] = r.Digest, true // a name given by another client stays
	}
	n.pins[release.Pin{Repository: r.Repository, Digest: r.Digest}] = true
	n.mu.Unlock()
	if t.Progress != nil {
		t.Progress(status.Progress{Reference: r.StagedName(), Phase: "done", Done: r.Size, Total: r.Size})
	}
	return nil
}

// pullFor checks the space and fetches.
func (n *Node) pullFor(ctx context.Context, r release.Release, t node.StageOptions) error {
	if t.CheckSpace != nil {
		if err := t.CheckSpace(ctx, policy.SpaceNeeded{Compressed: r.Size, Unpacked: 2 * r.Size}); err != nil {
			return err
		}
	}
	if n.Filled != nil {
		if err := n.Filled(r); err != nil {
			return err
		}
	}
	return n.fetch(r.Repository, r.Digest)
}

// fetch is the registry's part of a pull.
func (n *Node) fetch(repository string, d digest.Digest) error {
	if err := n.registry.serves(repository, d); err != nil {
		return fmt.Errorf("%s@%s: %w", repository, d, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fetched++
	return nil
}

// Name implements node.Images.
func (n *Node) Name(_ context.Context, p release.Pin) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := release.Release{Repository: p.Repository, Digest: p.Digest}.StagedName()
	if !n.holds(p.Digest) || n.lost[p.Digest] {
		return fmt.Errorf("%s: %w", name, release.ErrNotFound)
	}
	if n.records[name] != p.Digest {
		n.records[name], n.staged[name] = p.Digest, true
	}
	return nil
}

// Restore implements node.Images.
func (n *Node) Restore(_ context.Context, was node.HeldImage, d digest.Digest) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.holds(d) || n.lost[d]:
		return fmt.Errorf("%s: %w", was.Name, release.ErrNotFound)
	case n.pages[was.Name] == "" || n.records[was.Name] != was.Digest:
		return fmt.Errorf("%s: %w", was.Name, release.ErrConflict)
	}
	n.records[was.Name] = d
	delete(n.pages, was.Name)
	return nil
}

// PullPage makes kubelet pull a tag from a login page.
func (n *Node) PullPage(ref release.Reference) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records[ref.String()], n.pages[ref.String()] = digest.FromString("a page"), "text/html"
	delete(n.staged, ref.String())
}

// Pins implements node.Images.
func (n *Node) Pins(_ context.Context, want []release.Pin) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[release.Pin]bool{}
	for _, p := range want {
		if n.holds(p.Digest) {
			next[p] = true
		}
	}
	n.pins = next
	return nil
}

func (n *Node) holds(d digest.Digest) bool {
	for pin := range n.pins {
		if pin.Digest == d {
			return true
		}
	}
	return len(n.names(d)) > 0
}

// build returns the build of a manifest on the node.
func (n *Node) build(d digest.Digest) release.Build {
	if n.lost[d] {
		return release.Build{}
	}
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	return n.registry.known[d]
}

// Lose deletes the content of a digest from the node, as a garbage collector or a full disk may.
func (n *Node) Lose(d digest.Digest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost[d] = true
}

// PruneAll deletes the image records and pins of a digest, as `ctr images prune --all` does.
func (n *Node) PruneAll(d digest.Digest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.records, func(_ string, other digest.Digest) bool { return other == d })
	maps.DeleteFunc(n.pins, func(pin release.Pin, _ bool) bool { return pin.Digest == d })
}

// Collect runs kubelet's garbage collection: it deletes every image that neither runs nor is pinned.
func (n *Node) Collect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	used := map[digest.Digest]bool{}
	for pin := range n.pins {
		used[pin.Digest] = true
	}
	for _, p := range n.pods {
		for _, c := range p.containers {
			for _, d := range c.Digests {
				used[d] = true
			}
		}
	}
	maps.DeleteFunc(n.records, func(_ string, d digest.Digest) bool { return !used[d] })
}

// Pinned reports whether a digest has a pin.
func (n *Node) Pinned(repository string, d digest.Digest) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pins[release.Pin{Repository: repository, Digest: d}]
}

// Fetched counts the pulls that fetched content from the registry.
func (n *Node) Fetched() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fetched
}

// Names returns the names of the image records with a digest, without pins.
func (n *Node) Names(d digest.Digest) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names(d)
}

// Filesystem implements node.Pods.
func (n *Node) Filesystem(context.Context) (policy.Filesystem, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk, nil
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
	if slices.Contains(n.Others, n.build(d).Config) {
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
