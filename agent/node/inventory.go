// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Inventory is one observation of the node. Each cycle creates a new one.
type Inventory struct {
	Templates    []PodFile
	PodManifests []PodFile
	Waiting      []PodFile
	Containers   []Container
	Used         []digest.Digest // image ids of all containers of the node
	Held         []HeldImage
	// BlockedBySpace are the releases without enough disk space, by "repository@digest", with the space that they need;
	// Filesystem is the current space. Both are empty if no release is blocked.
	BlockedBySpace map[string]policy.SpaceNeeded
	Filesystem     policy.Filesystem
	NodeName       string        // kubelet appends it to the names of static pods; empty: unknown
	BusyGrain      string        // the grain in Busy; empty if Busy has another cause
	Busy           string        // why another operation may own the node; empty if none does
	RestartHolds   []status.Hold // why the node must not restart a pod now; set only if the plan may restart one
	// Missing is since when CRI has not shown expected containers, by "file/container". Unstarted are the containers
	// that kubelet does not start.
	Missing   map[string]time.Time
	Unstarted []Waiting
	Catalog   catalog.Listing // the last verified one
	// Gated are kubelet's answers for tags of registries whose first host is the node's local registry.
	Gated map[release.Reference]digest.Digest
}

// Find returns the file with that name, nil if there is none.
func Find(files []PodFile, name string) *PodFile {
	for i := range files {
		if files[i].Name == name {
			return &files[i]
		}
	}
	return nil
}

// ByName returns the files by their names.
func ByName(files []PodFile) map[string]*PodFile {
	out := make(map[string]*PodFile, len(files))
	for i := range files {
		out[files[i].Name] = &files[i]
	}
	return out
}

// FindContainer returns the running container with a name, else the one that started last.
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

// OrphanedAliases returns the records that CRI made for a pruned image: repository@digest and the image ID. They stay
// if another name has the same digest.
func (inv Inventory) OrphanedAliases(gone []HeldImage, aliases map[HeldImage]bool) []HeldImage {
	named, isGone := map[digest.Digest]bool{}, map[HeldImage]bool{}
	for _, h := range gone {
		isGone[h] = true
	}
	var out []HeldImage
	for _, h := range inv.Held {
		switch {
		case h.Pin, isGone[h]:
		case aliases[HeldImage{Name: h.Name, Digest: h.Digest}]:
			out = append(out, h)
		default:
			named[h.Digest] = true
		}
	}
	return slices.DeleteFunc(out, func(h HeldImage) bool { return named[h.Digest] })
}
