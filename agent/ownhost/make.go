// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Facts are what a table is made from.
type Facts struct {
	// Followed are the tags that containers follow, a tag as often as it is followed.
	Followed []Followed
	// UnderWay is what approved applies and rollbacks start, and what the boot has rendered. Of two
	// with one tag the first counts.
	UnderWay []Named
	// Images are those of the node that are complete and pinned.
	Images []Image
	// Pulled are what the tags of this node name in containerd, by REPOSITORY:TAG.
	Pulled map[string]digest.Digest
	// Known returns what a source has said of a digest; the zero value: nothing.
	Known func(release.Pin) release.Release
	// Denied reports whether a digest must not run on this node, and why.
	Denied func(digest.Digest) (reason string, is bool)
	// Last is the table before. What the agent wrote into a pod manifest and what is not proved
	// yet stands there alone.
	Last Table
	// Private are the repositories that a registry gave only with a login. ServePrivate: they are answered, too.
	Private      map[string]bool
	ServePrivate bool
	// IsPrivate is what a registry has wanted since the start, see Hosts; nil: only Private says it.
	IsPrivate func(repository string) (private, known bool)
}

// Followed is a tag that a container follows, and the digests that speak for it there; each may be empty.
type Followed struct {
	release.Reference
	Pending digest.Digest // of an override that is still to be applied
	Written digest.Digest // what the pod manifest names beside the tag
	Good    digest.Digest // what ran well in the container
}

// Image is the manifest or index of an image.
type Image struct {
	release.Pin
	MediaType string
	Size      int64 // in bytes
}

// Named is a tag and the digest that it names.
type Named struct {
	release.Reference
	Digest digest.Digest
}

// Omitted is a tag of a followed container that the table leaves out.
type Omitted struct {
	release.Reference
	Reason string
}

// Make decides what the own host answers. A tag that containers follow names, in this order:
//
//   - the digest that an approved apply or a rollback starts, or that the boot has rendered
//   - the digests of an override that is still to be applied
//   - the digest that the pod manifest names beside the tag
//   - the digest that ran well in one of the containers and that the tag has named; of several,
//     the one that kubelet pulled last, then the one that was created last
//   - what the last table says
//
// A digest that is denied, or that is not complete and pinned, is passed over. So a tag that two
// pods follow names the newer digest from the moment on at which it is approved for one of them,
// and the other pod takes it at its next start.
func Make(f Facts) (Table, []Omitted) {
	m := maker{Facts: f, found: map[release.Reference]*candidates{}}
	m.add()
	var t Table
	var omitted []Omitted
	slices.SortFunc(m.order, compareReferences)
	for _, ref := range slices.Compact(m.order) {
		e, why := m.entry(ref)
		if why == "" && len(t.Entries) == MaxEntries {
			why = fmt.Sprintf("the table has %d tags already", MaxEntries)
		}
		if why != "" {
			omitted = append(omitted, Omitted{ref, why})
			continue
		}
		t.Entries = append(t.Entries, e)
	}
	return t, omitted
}

// maker makes one table.
type maker struct {
	Facts
	order []release.Reference
	found map[release.Reference]*candidates
}

// candidates are the digests that a tag may name, by what speaks for them.
type candidates struct {
	underWay, pending, written, good []digest.Digest
}

func compareReferences(x, y release.Reference) int {
	return cmp.Or(
		strings.Compare(RegistryOf(x.Repository), RegistryOf(y.Repository)),
		strings.Compare(x.Repository, y.Repository), strings.Compare(x.Tag, y.Tag),
	)
}

// of returns the candidates of a tag.
func (m *maker) of(ref release.Reference) *candidates {
	if m.found[ref] == nil {
		m.found[ref] = &candidates{}
		m.order = append(m.order, ref)
	}
	return m.found[ref]
}

// add collects the candidates.
func (m *maker) add() {
	for _, n := range m.UnderWay {
		if n.Repository != "" && n.Digest != "" {
			c := m.of(n.Tagged())
			c.underWay = append(c.underWay, n.Digest)
		}
	}
	for _, at := range m.Followed {
		ref := at.Tagged()
		c := m.of(ref)
		c.pending, c.written = append(c.pending, at.Pending), append(c.written, at.Written)
		if m.hasNamed(ref, at.Good) {
			c.good = append(c.good, at.Good)
		}
	}
}

// hasNamed reports whether a tag is known to have named a digest: kubelet's last pull of the tag
// gave it, or the source did.
func (m *maker) hasNamed(ref release.Reference, d digest.Digest) bool {
	return m.Pulled[ref.String()] == d || m.Known(release.Pin{Repository: ref.Repository, Digest: d}).Tag == ref.Tag
}

// entry decides what a tag names; why says why the table leaves it out.
func (m *maker) entry(ref release.Reference) (e Entry, why string) {
	if m.isPrivate(ref.Repository) && !m.ServePrivate {
		return e, "private: the registry wanted a login (localhost.private)"
	}
	all := m.found[ref]
	m.sortGood(ref, all.good)
	for _, d := range slices.Concat(all.underWay, all.pending, all.written, all.good, []digest.Digest{m.Last.named(ref)}) {
		if d == "" {
			continue
		}
		image, no := m.usable(release.Pin{Repository: ref.Repository, Digest: d})
		e := entryOf(ref, image)
		if err := e.check(); no == "" && err != nil {
			no = err.Error()
		}
		if no == "" {
			return e, ""
		}
		why = cmp.Or(why, no)
	}
	return Entry{}, cmp.Or(why, "nothing is known to have run well under this tag")
}

// isPrivate reports whether a registry gives a repository only with a login.
func (m *maker) isPrivate(repository string) bool {
	if m.IsPrivate != nil {
		if private, known := m.IsPrivate(repository); known {
			return private
		}
	}
	return m.Private[repository]
}

// sortGood sorts digests that ran well: first what kubelet pulled last, then what was created
// last.
func (m *maker) sortGood(ref release.Reference, good []digest.Digest) {
	slices.SortFunc(good, func(x, y digest.Digest) int {
		pulled := m.Pulled[ref.String()]
		created := func(d digest.Digest) int64 {
			return m.Known(release.Pin{Repository: ref.Repository, Digest: d}).Created.Unix()
		}
		return cmp.Or(
			isTrue(y == pulled)-isTrue(x == pulled), cmp.Compare(created(y), created(x)),
			strings.Compare(x.String(), y.String()),
		)
	})
}

func isTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}

// usable returns the image of a digest that may be served; no says why it may not.
func (m *maker) usable(p release.Pin) (image Image, no string) {
	if reason, denied := m.Denied(p.Digest); denied {
		return image, fmt.Sprintf("%s is denied: %s", p.Digest, reason)
	}
	at := slices.IndexFunc(m.Images, func(i Image) bool { return i.Pin == p })
	if at < 0 {
		return image, fmt.Sprintf("%s is not complete and pinned", p.Digest)
	}
	if image = m.Images[at]; !isManifest(image.MediaType) {
		return image, fmt.Sprintf("%s is no image manifest: %q", p.Digest, outside.Text(image.MediaType))
	}
	return image, ""
}

// isManifest reports whether a media type is that of an image or an index.
func isManifest(mediaType string) bool {
	switch mediaType {
	case "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json":
		return true
	}
	return false
}

func entryOf(ref release.Reference, image Image) Entry {
	registry, repository, _ := strings.Cut(ref.Repository, "/")
	return Entry{
		Registry: registry, Repository: repository, Tag: ref.Tag,
		Digest: image.Digest, MediaType: image.MediaType, Size: image.Size,
	}
}
