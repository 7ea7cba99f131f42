// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// HeldIndex finds the image records of an inventory. It is made once for all images.
type HeldIndex struct {
	byName   map[string]HeldImage
	byConfig map[digest.Digest]digest.Digest // the first record's
	origins  map[digest.Digest]string        // "" if the label is missing, or unknown
	staged   map[release.Pin]bool
	readable map[digest.Digest]bool
}

// Index returns an index of the image records.
func (inv Inventory) Index() HeldIndex {
	x := HeldIndex{
		make(map[string]HeldImage, len(inv.Held)),
		map[digest.Digest]digest.Digest{},
		make(map[digest.Digest]string, len(inv.Held)),
		map[release.Pin]bool{},
		map[digest.Digest]bool{},
	}
	for _, h := range inv.Held {
		x.byName[h.Name] = h
		if _, known := x.byConfig[h.Config]; !known && h.Config != "" {
			x.byConfig[h.Config] = h.Digest
		}
		if x.origins[h.Digest] == "" {
			x.origins[h.Digest] = h.Origin
		}
		x.readable[h.Digest] = x.readable[h.Digest] || h.Config != ""
		if h.Pin && h.Complete {
			x.staged[release.Pin{Repository: h.Repository, Digest: h.Digest}] = true
		}
	}
	return x
}

// Named returns the image record with a name.
func (x HeldIndex) Named(name string) (h HeldImage, is bool) {
	h, is = x.byName[name]
	return h, is
}

// Staged reports whether a release is complete, unpacked and pinned.
func (x HeldIndex) Staged(r release.Release) bool {
	return x.staged[release.Pin{Repository: r.Repository, Digest: r.Digest}]
}

// Has reports whether the node has a digest, pinned or not.
func (x HeldIndex) Has(d digest.Digest) bool {
	_, is := x.origins[d]
	return is
}

// IsReadable reports whether the node can read the image of a digest.
func (x HeldIndex) IsReadable(d digest.Digest) bool { return x.readable[d] }

// OriginOf returns the repository in the label of an image on the node; empty if there is none, or if it is unknown.
func (x HeldIndex) OriginOf(d digest.Digest) string { return x.origins[d] }

// DigestOf returns the digest of a container's image; empty if unknown. It prefers CRI's digest if the image store has
// it, then the image store's record with the same config digest: CRI has no repository digest for some names.
func (x HeldIndex) DigestOf(c *Container) digest.Digest {
	for _, d := range c.Digests {
		if x.Has(d) {
			return d
		}
	}
	if d, known := x.byConfig[c.Image]; known {
		return d
	}
	if len(c.Digests) > 0 {
		return c.Digests[0]
	}
	return ""
}
