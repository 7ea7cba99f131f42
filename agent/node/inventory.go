// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Inventory is one observation of the node. Each cycle makes a new one.
type Inventory struct {
	Templates    []PodFile
	PodManifests []PodFile
	Waiting      []PodFile
	Containers   []Container
	Used         []digest.Digest // image ids of all containers of the node
	Held         []HeldImage
	// BlockedBySpace are the releases without disk space, by "repository@digest", and what they
	// need; Filesystem is the space now. Both are empty where no release is blocked.
	BlockedBySpace map[string]policy.SpaceNeeded
	Filesystem     policy.Filesystem
	NodeName       string        // kubelet appends it to the names of static pods; empty: unknown
	BusyGrain      string        // the grain in Busy; empty: it is not of a grain
	Busy           string        // why another operation may own the node; empty: none does
	RestartHolds   []status.Hold // why the node must not restart a pod now; only set where the plan may restart one
	// Missing is since when CRI does not show expected containers, by "file/container". Unstarted
	// are the containers that kubelet does not start.
	Missing   map[string]time.Time
	Unstarted []Waiting
	Catalog   catalog.Listing // the last verified one
	// Gated is what kubelet gets for tags of registries whose first host is the node's own.
	Gated map[release.Reference]digest.Digest
}

// Find returns the file of that name, nil where there is none.
func Find(files []PodFile, name string) *PodFile {
	for i := range files {
		if files[i].Name == name {
			return &files[i]
		}
	}
	return nil
}

// Staged reports whether a release is complete, unpacked and pinned.
func (inv Inventory) Staged(r release.Release) bool {
	for _, h := range inv.Held {
		if h.Pin && h.Complete && h.Repository == r.Repository && h.Digest == r.Digest {
			return true
		}
	}
	return false
}

// PodContainers returns the containers of a static pod; all are the names of all static pods. If
// one of them runs, the dead containers that kubelet keeps of earlier sandboxes are left out.
func (inv Inventory) PodContainers(namespace, pod string, all []string) []Container {
	var out []Container
	live := map[string]bool{}
	for _, c := range inv.Containers {
		if c.Namespace == namespace && strings.HasPrefix(c.Pod, pod) && inv.Owner(c.Pod, all) == pod {
			out = append(out, c)
			if c.Running {
				live[c.Sandbox] = true
			}
		}
	}
	if len(live) == 0 {
		return out
	}
	return slices.DeleteFunc(out, func(c Container) bool { return !live[c.Sandbox] })
}

// Owner is the one of names that a CRI pod belongs to; empty: none. kubelet names a static pod
// <pod>-<node>. Without the node's name, the longest name that fits is taken. That may be wrong
// for a pod whose file was just removed: velum-db-node1 may be velum-db on node1, or velum on
// db-node1.
func (inv Inventory) Owner(criPod string, names []string) string {
	if pod, ok := strings.CutSuffix(criPod, "-"+inv.NodeName); ok && inv.NodeName != "" {
		if slices.Contains(names, pod) {
			return pod
		}
		return ""
	}
	best := ""
	for _, n := range names {
		if rest, ok := strings.CutPrefix(criPod, n); ok && len(n) > len(best) && strings.HasPrefix(rest, "-") {
			best = n
		}
	}
	return best
}

// FindContainer returns the running container of a name, else the one that started last.
func FindContainer(all []Container, name string) *Container {
	var best *Container
	for i := range all {
		c := &all[i]
		switch {
		case c.Name != name:
		case best == nil, c.Running && !best.Running,
			c.Running == best.Running && !c.StartedAt.Before(best.StartedAt):
			best = c
		}
	}
	return best
}

// DigestOf is the digest of a container's image; empty: unknown. CRI's digest that the image store
// holds comes first, then the image store's record with the same config digest: CRI has no
// repository digest for some names.
func DigestOf(c *Container, held []HeldImage) digest.Digest {
	for _, d := range c.Digests {
		if slices.ContainsFunc(held, func(h HeldImage) bool { return h.Digest == d }) {
			return d
		}
	}
	for _, h := range held {
		if h.Config != "" && h.Config == c.Image {
			return h.Digest
		}
	}
	if len(c.Digests) > 0 {
		return c.Digests[0]
	}
	return ""
}

// Has reports whether the node has a digest, pinned or not.
func (inv Inventory) Has(dg digest.Digest) bool {
	return slices.ContainsFunc(inv.Held, func(h HeldImage) bool { return h.Digest == dg })
}

// OriginOf is the repository that the label of an image on the node names; empty: there is none, or it is not known.
func (inv Inventory) OriginOf(d digest.Digest) string {
	for _, h := range inv.Held {
		if h.Digest == d && h.Origin != "" {
			return h.Origin
		}
	}
	return ""
}

// Digests returns the digests that the node has, and the pinned ones.
func (inv Inventory) Digests() (digests map[digest.Digest]bool, pins map[release.Pin]bool) {
	digests, pins = map[digest.Digest]bool{}, map[release.Pin]bool{}
	for _, h := range inv.Held {
		digests[h.Digest] = true
		if h.Pin {
			pins[release.Pin{Repository: h.Repository, Digest: h.Digest}] = true
		}
	}
	return digests, pins
}

// OrphanedAliases returns the records that CRI made beside a pruned image: repository@digest
// and the image ID. They stay if another name has the same digest.
func (inv Inventory) OrphanedAliases(gone []HeldImage, aliases map[HeldImage]bool) []HeldImage {
	named := map[digest.Digest]bool{}
	var out []HeldImage
	for _, h := range inv.Held {
		switch {
		case h.Pin, slices.Contains(gone, h):
		case aliases[HeldImage{Name: h.Name, Digest: h.Digest}]:
			out = append(out, h)
		default:
			named[h.Digest] = true
		}
	}
	return slices.DeleteFunc(out, func(h HeldImage) bool { return named[h.Digest] })
}
