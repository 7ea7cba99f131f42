// SPDX-License-Identifier: Apache-2.0

// Package localregistry decides the answers of the node's local registry, and reports its status.
//
// The local registry is a host in containerd's hosts.toml that this node serves itself. It answers the HEAD of a
// manifest from a Table, which maps floating tags to digests on this node. A table never names a digest that is
// incomplete, not pinned, waiting for approval, or denied.
package localregistry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Facts are the input of a table.
type Facts struct {
	// Followed are the tags of containers, once per container.
	Followed []Followed
	// UnderWay are the tags that approved applies and rollbacks start, and that the boot has rendered. Of two with the
	// same tag the first counts.
	UnderWay []Named
	// Images are the complete and pinned images of the node.
	Images []Image
	// Pulled are the digests of the node's tags in containerd, by REPOSITORY:TAG.
	Pulled map[string]digest.Digest
	// Known returns the description of a digest from a source; the zero value if there is none.
	Known func(release.Pin) release.Release
	// Denied reports whether a digest must not run on this node, with the reason.
	Denied func(digest.Digest) (reason string, is bool)
	// Last is the previous table. Only it has the tags of written pod manifests that have not passed their health
	// check.
	Last Table
	// Private are the repositories that need a login. ServePrivate: serve them, too.
	Private      map[string]bool
	ServePrivate bool
	// IsPrivate reports the logins needed since the start, see Hosts; nil: only Private counts.
	IsPrivate func(repository string) (private, known bool)
}

// Followed is a tag that a container follows, and its candidate digests; each may be empty.
type Followed struct {
	release.Reference
	Pending digest.Digest // of a pending override
	Written digest.Digest // next to the tag in the pod manifest
	Good    digest.Digest // the container's last known good one
}

// Image is the manifest or index of an image.
type Image struct {
	release.Pin
	MediaType string
	Size      int64 // in bytes
}

// Named is a tag and its digest.
type Named struct {
	release.Reference
	Digest digest.Digest
}

// Omitted is a followed tag that the table omits.
type Omitted struct {
	release.Reference
	Reason string
}

// Make makes the table. A followed tag gets the first of these digests:
//
//   - the digest that an approved apply or a rollback starts, or that the boot has rendered
//   - the digests of a pending override
//   - the digest next to the tag in the pod manifest
//   - the last known good digest of one of the containers, if the tag has named it; of several,
//     the one that kubelet pulled last, or else the one that was created last
//   - the digest in the last table
//
// Digests that are denied, incomplete or not pinned are skipped. If two pods follow one tag, it names the newer digest
// as soon as that is approved for one of them, and the other pod gets it at its next start.
func Make(f Facts) (Table, []Omitted) {
	m := maker{Facts: f, found: map[release.Reference]*candidates{}, images: make(map[release.Pin]Image, len(f.Images))}
	for _, i := range f.Images {
		m.images[i.Pin] = i
	}
	m.add()
	var t Table
	var omitted []Omitted
	texts := 0
	slices.SortFunc(m.order, compareReferences)
	for _, ref := range slices.Compact(m.order) {
		e, why := m.entry(ref)
		if why == "" && (len(t.Entries) == table.MaxEntries || texts+e.Texts() > table.MaxTexts) {
			why = fmt.Sprintf("the table is full: it already has %d tags", len(t.Entries))
		}
		if why != "" {
			omitted = append(omitted, Omitted{ref, why})
			continue
		}
		t.Entries, texts = append(t.Entries, e), texts+e.Texts()
	}
	return t, omitted
}

// maker makes one table.
type maker struct {
	Facts
	order  []release.Reference
	images map[release.Pin]Image
	found  map[release.Reference]*candidates
}

// candidates are the digests for a tag, by their reason.
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

// hasNamed reports whether a tag is known to have named a digest: by kubelet's last pull of the tag, or by the source.
func (m *maker) hasNamed(ref release.Reference, d digest.Digest) bool {
	return m.Pulled[ref.String()] == d || m.Known(release.Pin{Repository: ref.Repository, Digest: d}).Tag == ref.Tag
}

// entry returns the entry of a tag; why is the reason if the table omits it.
func (m *maker) entry(ref release.Reference) (e Entry, why string) {
	if m.isPrivate(ref.Repository) && !m.ServePrivate {
		return e, "private: the registry requires a login (localRegistry.private)"
	}
	all := m.found[ref]
	m.sortGood(ref, all.good)
	last := []digest.Digest{digestIn(m.Last, ref)}
	for _, d := range slices.Concat(all.underWay, all.pending, all.written, all.good, last) {
		if d == "" {
			continue
		}
		image, no := m.usable(release.Pin{Repository: ref.Repository, Digest: d})
		e := entryOf(ref, image)
		if err := e.Check(); no == "" && err != nil {
			no = err.Error()
		}
		if no == "" {
			return e, ""
		}
		why = cmp.Or(why, no)
	}
	return Entry{}, cmp.Or(why, "no release of this tag is known to have run well")
}

// isPrivate reports whether a repository needs a login.
func (m *maker) isPrivate(repository string) bool {
	if m.IsPrivate != nil {
		if private, known := m.IsPrivate(repository); known {
			return private
		}
	}
	return m.Private[repository]
}

// sortGood sorts known good digests: first the one that kubelet pulled last, then the one that was created last.
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

// usable returns the image of a digest that may be served; no is the reason if it may not.
func (m *maker) usable(p release.Pin) (image Image, no string) {
	if reason, denied := m.Denied(p.Digest); denied {
		return image, fmt.Sprintf("%s is denied: %s", p.Digest, reason)
	}
	image, is := m.images[p]
	if !is {
		return image, fmt.Sprintf("%s is incomplete or not pinned", p.Digest)
	}
	if !isManifest(image.MediaType) {
		return image, fmt.Sprintf("%s is not an image manifest: %q", p.Digest, outside.Text(image.MediaType))
	}
	return image, ""
}

// isManifest reports whether a media type is that of an image manifest or an index.
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
		Digest: image.Digest.String(), MediaType: image.MediaType, Size: image.Size,
	}
}

// Address is the listen address of the local registry. The port is below 1024, so that only root can listen on it;
// below 512, because NFS and other users of bindresvport(3) choose no such port; and IANA assigns it to no service.
const Address = "127.0.0.1:334"

// URL is the local registry's URL in hosts.toml.
const URL = "http://" + Address

// Is reports whether a host of a registry, as containerd's parser reads it, is the local registry. host includes its
// port.
func Is(scheme, host string) bool { return scheme == "http" && host == Address }

// PositionIn returns the position of the local registry among the hosts of a registry: their URLs without a path, in
// the order in which containerd asks. At the front it is the Gate, after another host a Fallback.
func PositionIn(hosts []string) Position {
	switch slices.Index(hosts, URL) {
	case -1:
		return Off
	case 0:
		return Gate
	default:
		return Fallback
	}
}

// Position is the local registry's position in hosts.toml.
type Position string

// The positions of the local registry among the hosts of a registry.
const (
	Off      Position = ""         // hosts.toml does not name it
	Fallback Position = "fallback" // last: asked if no other host answers
	Gate     Position = "gate"     // first: asked before any other host
)

// Journal counts the local registry's answers since the boot, or since its journal was shortened at 64 KiB.
type Journal struct {
	Served, Unknown, Refused int
	// Last is when each tag was last served, by REPOSITORY:TAG with the registry. A request by digest counts for a tag
	// with that digest.
	Last map[string]time.Time
}

type (
	// Entry is a floating tag and the manifest for its HEAD.
	Entry = table.Entry
	// Table is the local registry's table, in the format of the program that answers from it.
	Table = table.Table
)

// Store stores the table for the local registry.
type Store interface {
	// Save replaces the table atomically. It does not write an equal table.
	Save(ctx context.Context, t Table) error
}

// Hosts reads the local registry's part of hosts.toml.
type Hosts interface {
	// Position returns the local registry's position among the hosts of a registry (registry.suse.com). It is Off if
	// hosts.toml cannot be read.
	Position(registry string) Position
	// Private reports whether the last request for a repository (registry.suse.com/caasp/v4/velum) needed a login.
	// known: there was a request since the start.
	Private(repository string) (private, known bool)
}

// ReferenceOf returns the tag of an entry with its whole repository, as in a pod manifest.
func ReferenceOf(e Entry) release.Reference {
	return release.Reference{Repository: e.Registry + "/" + e.Repository, Tag: e.Tag}
}

// RegistryOf returns the registry of a repository: registry.suse.com for registry.suse.com/caasp/v4/velum.
func RegistryOf(repository string) string {
	registry, _, _ := strings.Cut(repository, "/")
	return registry
}
