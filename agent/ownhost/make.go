// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Facts are what a table is made from.
type Facts struct {
	Inventory node.Inventory
	Record    record.Record
	Policy    policy.Policy
	// UnderWay is what approved applies and rollbacks start, and what the boot has rendered. Of two
	// with one tag the first counts.
	UnderWay []Named
	// Last is the table before. What the agent wrote into a pod manifest and what is not proved
	// yet stands there alone.
	Last Table
	// Private is what a registry has wanted since the start, see Hosts; nil: only the record says it.
	Private func(repository string) (private, known bool)
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
	m := maker{Facts: f, pins: pinsOf(f.Inventory.Held), names: namesOf(f.Inventory.Held)}
	m.add(follow.ReadPods(f.Inventory, f.Record, f.Policy))
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
	pins  map[release.Pin]node.HeldImage
	names map[string]digest.Digest // the image records of containerd that are tags
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

// pinsOf returns the complete pins.
func pinsOf(held []node.HeldImage) map[release.Pin]node.HeldImage {
	out := map[release.Pin]node.HeldImage{}
	for _, h := range held {
		if h.Pin && h.Complete {
			out[release.Pin{Repository: h.Repository, Digest: h.Digest}] = h
		}
	}
	return out
}

func namesOf(held []node.HeldImage) map[string]digest.Digest {
	out := map[string]digest.Digest{}
	for _, h := range held {
		if !h.Pin && !h.Staged {
			out[h.Name] = h.Digest
		}
	}
	return out
}

// of returns the candidates of a tag.
func (m *maker) of(ref release.Reference) *candidates {
	if m.found == nil {
		m.found = map[release.Reference]*candidates{}
	}
	if m.found[ref] == nil {
		m.found[ref] = &candidates{}
		m.order = append(m.order, ref)
	}
	return m.found[ref]
}

// add collects the candidates of all pods.
func (m *maker) add(views []follow.PodView) {
	for _, n := range m.UnderWay {
		if n.Repository != "" && n.Digest != "" {
			c := m.of(tagged(n.Reference))
			c.underWay = append(c.underWay, n.Digest)
		}
	}
	for _, v := range views {
		if v.Err != nil || v.Disk == nil {
			continue
		}
		for _, w := range v.Wants {
			if node.IsContainer(w.Image) && w.Ask.Repository != "" && w.OnDisk.Repository != "" {
				m.addContainer(v, w)
			}
		}
	}
}

// addContainer collects the candidates of a followed container.
func (m *maker) addContainer(v follow.PodView, w follow.Want) {
	place := node.PlaceOf(w.Image)
	on := tagged(w.OnDisk)
	c := m.of(on)
	at := v.Override.Images[place]
	if v.Override.Pending && at.Repository == on.Repository && at.Follow == on.Tag {
		c.pending = append(c.pending, at.Digest)
	}
	if at := v.Bound[place]; at.Repository == on.Repository {
		c.written = append(c.written, at.Digest)
	}
	good := m.Record.Good[record.GoodKey(v.File, w.Image.Container)]
	if good.Repository == on.Repository && m.hasNamed(on, good.Running) {
		c.good = append(c.good, good.Running)
	}
}

// hasNamed reports whether a tag is known to have named a digest: kubelet's last pull of the tag
// gave it, or the source did.
func (m *maker) hasNamed(ref release.Reference, d digest.Digest) bool {
	return m.names[ref.String()] == d || m.Record.Releases[release.Key(ref.Repository, d)].Tag == ref.Tag
}

// tagged is a reference with the tag that kubelet pulls where none is written.
func tagged(ref release.Reference) release.Reference {
	ref.Tag = cmp.Or(ref.Tag, "latest")
	return ref
}

// entry decides what a tag names; why says why the table leaves it out.
func (m *maker) entry(ref release.Reference) (e Entry, why string) {
	if m.isPrivate(ref.Repository) && !m.Policy.ServePrivate {
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
	if m.Private != nil {
		if private, known := m.Private(repository); known {
			return private
		}
	}
	return m.Record.Private[repository]
}

// sortGood sorts digests that ran well: first what kubelet pulled last, then what was created
// last.
func (m *maker) sortGood(ref release.Reference, good []digest.Digest) {
	slices.SortFunc(good, func(x, y digest.Digest) int {
		pulled := m.names[ref.String()]
		created := func(d digest.Digest) int64 {
			return m.Record.Releases[release.Key(ref.Repository, d)].Created.Unix()
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

// usable returns the pin of a digest that may be served; no says why it may not.
func (m *maker) usable(p release.Pin) (image node.HeldImage, no string) {
	if refusal, denied := m.Record.Denies(release.Release{Repository: p.Repository, Digest: p.Digest}); denied {
		return image, fmt.Sprintf("%s is denied: %s", p.Digest, refusal.Reason)
	}
	image, pinned := m.pins[p]
	switch {
	case !pinned:
		return image, fmt.Sprintf("%s is not complete and pinned", p.Digest)
	case !isManifest(image.MediaType):
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

func entryOf(ref release.Reference, image node.HeldImage) Entry {
	registry, repository, _ := strings.Cut(ref.Repository, "/")
	return Entry{
		Registry: registry, Repository: repository, Tag: ref.Tag,
		Digest: image.Digest, MediaType: image.MediaType, Size: image.Size,
	}
}
