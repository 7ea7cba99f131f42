// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Limits of a manifest.
const (
	MaxManifest = 4 << 20 // bytes
	MaxImages   = 16000
	// MaxVersion is the highest version that every reader of JSON can tell from the one before.
	MaxVersion = 1<<53 - 1
	maxMerged  = 128 // ops in an annotation
	// MaxLogParts is how many parts the log of a channel has at most.
	MaxLogParts = 256
	maxOps      = 8 << 20
	maxLayers   = MaxImages + MaxLogParts + 1
)

// The annotations of a manifest.
const (
	annotationName     = "org.kubic.image-catalog.name"
	annotationChannel  = "org.kubic.image-catalog.channel"
	annotationVersion  = "org.kubic.image-catalog.version"
	annotationExpires  = "org.kubic.image-catalog.expires"
	annotationPrevious = "org.kubic.image-catalog.previous"
	annotationMerged   = "org.kubic.image-catalog.merged"
	annotationRefresh  = "org.kubic.image-catalog.refreshed"
	annotationFrozen   = "org.kubic.image-catalog.frozen"
	annotationFreeze   = "org.kubic.image-catalog.freeze"
	annotationTurns    = "org.kubic.image-catalog.turns"
)

// Manifest is one version of a channel.
type Manifest struct {
	Name    string // the repository that it was published as
	Channel string
	Version uint64 // from 1
	Created time.Time
	Times
	// Previous is the digest of the version before; empty: it is the first.
	Previous digest.Digest
	// Merged are the tags of the ops that this version is the first to have, sorted; of more
	// than 128, the last ones.
	Merged []string
	// Ops is the list of all folded ops that still have their tags. Only publishers read it. Empty: there are none.
	// See EncodeOps.
	Ops   BlobRef
	Log   []BlobRef // the parts of the channel's log, the oldest first
	Pages []PageRef // sorted by image
	// Shards replace Pages in a decoded manifest with many images; sorted. See Join.
	Shards []ShardRef
}

// Times are when a version of a channel expires, when its freeze ends, and what orders later ops.
type Times struct {
	Expires   time.Time // zero: never
	Refreshed Mark      // the op that set Expires
	// Frozen is until when publishers refuse to add and to promote; zero: the channel is not frozen.
	Frozen time.Time
	Freeze Mark // the op that set Frozen
	// Turn is the highest turn of the ops that were folded; 0: all are of older publishers.
	Turn uint64
}

// turns returns the annotation with the turns; empty: all are zero.
func (t Times) turns() string {
	if t.Turn == 0 {
		return ""
	}
	return fmt.Sprintf("%d,%d,%d", t.Turn, t.Refreshed.Turn, t.Freeze.Turn)
}

// setTurns reads what turns writes.
func (t *Times) setTurns(text string) (err error) {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	into := []*uint64{&t.Turn, &t.Refreshed.Turn, &t.Freeze.Turn}
	if len(parts) != len(into) {
		return newError(KindFormat, "annotation %s: %.40q: want three numbers", annotationTurns, text)
	}
	for n, part := range parts {
		if *into[n], err = strconv.ParseUint(part, 10, 53); err != nil {
			return wrap(KindFormat, err, "annotation %s", annotationTurns)
		}
	}
	return nil
}

// BlobRef refers to a blob.
type BlobRef struct {
	Digest digest.Digest
	Size   int64 // bytes
}

// PageRef refers to the page of an image.
type PageRef struct {
	Image  string        `json:"image"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"` // bytes
}

// Encode returns the manifest as an OCI manifest, and its digest.
func (m Manifest) Encode() ([]byte, digest.Digest, error) {
	if err := m.check(); err != nil {
		return nil, "", err
	}
	if len(m.Shards) > 0 {
		return nil, "", newError(KindFormat, "the shards of the manifest were not read")
	}
	notes := map[string]string{
		annotationName: m.Name, annotationChannel: m.Channel,
		annotationVersion: strconv.FormatUint(m.Version, 10), ocispec.AnnotationCreated: formatTime(m.Created),
	}
	for key, value := range map[string]string{
		annotationExpires: formatTime(m.Expires), annotationPrevious: m.Previous.String(),
		annotationMerged: strings.Join(m.Merged, ","), annotationRefresh: m.Refreshed.Op,
		annotationFrozen: formatTime(m.Frozen), annotationFreeze: m.Freeze.Op,
		annotationTurns: m.turns(),
	} {
		if value != "" {
			notes[key] = value
		}
	}
	doc := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: ArtifactType, Config: emptyBlob(), Layers: []ocispec.Descriptor{}, Annotations: notes,
	}
	shards, _, err := m.split()
	if err != nil {
		return nil, "", err
	}
	for _, s := range shards {
		doc.Layers = append(doc.Layers, titled(ShardMediaType, s.First, s.Digest, s.Size))
	}
	if len(shards) == 0 {
		for _, p := range m.Pages {
			doc.Layers = append(doc.Layers, titled(PageMediaType, p.Image, p.Digest, p.Size))
		}
	}
	for _, part := range m.Log {
		doc.Layers = append(doc.Layers, ocispec.Descriptor{MediaType: LogMediaType, Digest: part.Digest, Size: part.Size})
	}
	if m.Ops.Digest != "" {
		doc.Layers = append(doc.Layers, ocispec.Descriptor{MediaType: OpsMediaType, Digest: m.Ops.Digest, Size: m.Ops.Size})
	}
	if len(doc.Layers) == 0 { // registries refuse a manifest without layers
		doc.Layers = append(doc.Layers, emptyBlob())
	}
	out, err := json.Marshal(doc)
	if err == nil && len(out) > MaxManifest {
		err = newError(KindTooLarge, "the manifest has more than %d bytes", MaxManifest)
	}
	return out, digest.FromBytes(out), err
}

// titled is a descriptor of something of an image.
func titled(mediaType, image string, d digest.Digest, size int64) ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType: mediaType, Digest: d, Size: size, Annotations: map[string]string{ocispec.AnnotationTitle: image},
	}
}

// emptyBlob is OCI's descriptor for no content, two bytes of JSON.
func emptyBlob() ocispec.Descriptor {
	empty := ocispec.DescriptorEmptyJSON
	empty.Data = nil
	return empty
}

// DecodeManifest decodes a manifest and checks every field.
func DecodeManifest(data []byte) (Manifest, error) {
	doc, err := unmarshalOCI(data, &ocimanifest.Bounds{Entries: maxLayers, Members: maxLayers * maxUnknown})
	if err != nil {
		return Manifest{}, err
	}
	if doc.ArtifactType != ArtifactType {
		return Manifest{}, newError(KindFormat, "artifact type %q: want %s", doc.ArtifactType, ArtifactType)
	}
	m := Manifest{
		Name: doc.Annotations[annotationName], Channel: doc.Annotations[annotationChannel],
		Previous: digest.Digest(doc.Annotations[annotationPrevious]),
	}
	m.Refreshed.Op, m.Freeze.Op = doc.Annotations[annotationRefresh], doc.Annotations[annotationFreeze]
	if merged := doc.Annotations[annotationMerged]; merged != "" {
		m.Merged = strings.Split(merged, ",")
	}
	if m.Version, err = strconv.ParseUint(doc.Annotations[annotationVersion], 10, 64); err != nil {
		return Manifest{}, wrap(KindFormat, err, "annotation %s", annotationVersion)
	}
	if m.Created, err = parseTime(doc.Annotations, ocispec.AnnotationCreated); err != nil {
		return Manifest{}, err
	}
	if m.Expires, err = parseTime(doc.Annotations, annotationExpires); err != nil {
		return Manifest{}, err
	}
	if m.Frozen, err = parseTime(doc.Annotations, annotationFrozen); err != nil {
		return Manifest{}, err
	}
	if err = m.setTurns(doc.Annotations[annotationTurns]); err != nil {
		return Manifest{}, err
	}
	for _, l := range doc.Layers {
		switch l.MediaType { // others are for later readers
		case LogMediaType:
			m.Log = append(m.Log, BlobRef{Digest: l.Digest, Size: l.Size})
		case ShardMediaType:
			m.Shards = append(m.Shards, ShardRef{
				First: l.Annotations[ocispec.AnnotationTitle], BlobRef: BlobRef{Digest: l.Digest, Size: l.Size},
			})
		case PageMediaType:
			m.Pages = append(m.Pages, PageRef{Image: l.Annotations[ocispec.AnnotationTitle], Digest: l.Digest, Size: l.Size})
		case OpsMediaType:
			m.Ops = BlobRef{Digest: l.Digest, Size: l.Size}
		}
	}
	return m, m.check()
}

// Page returns the reference to the page of an image.
func (m Manifest) Page(image string) (PageRef, bool) {
	at, found := slices.BinarySearchFunc(m.Pages, image, compareImage)
	if !found {
		return PageRef{}, false
	}
	return m.Pages[at], true
}

func compareImage(p PageRef, image string) int { return strings.Compare(p.Image, image) }

// check checks all fields.
func (m Manifest) check() error {
	if err := checkImage(m.Name); err != nil {
		return wrap(KindFormat, err, "annotation %s", annotationName)
	}
	if err := CheckChannel(m.Channel); err != nil {
		return err
	}
	switch {
	case m.Version == 0 || m.Version > MaxVersion:
		return newError(KindFormat, "annotation %s: %d: want 1 to %d", annotationVersion, m.Version, uint64(MaxVersion))
	case m.Previous != "" && m.Previous.Validate() != nil:
		return newError(KindFormat, "annotation %s: %.40q is no digest", annotationPrevious, string(m.Previous))
	case m.Refreshed.Op != "" && !IsOpTag(m.Refreshed.Op):
		return newError(KindFormat, "annotation %s: %.40q is not the tag of an op", annotationRefresh, m.Refreshed.Op)
	case m.Freeze.Op != "" && !IsOpTag(m.Freeze.Op):
		return newError(KindFormat, "annotation %s: %.40q is not the tag of an op", annotationFreeze, m.Freeze.Op)
	case len(m.Merged) > maxMerged:
		return newError(KindTooLarge, "annotation %s: more than %d ops", annotationMerged, maxMerged)
	case len(m.Pages) > MaxImages:
		return newError(KindTooLarge, "more than %d images", MaxImages)
	}
	if err := m.checkBlobs(); err != nil {
		return err
	}
	for n, op := range m.Merged {
		if !IsOpTag(op) || n > 0 && op <= m.Merged[n-1] {
			return newError(KindFormat, "annotation %s: %.40q: want tags of ops, sorted", annotationMerged, op)
		}
	}
	if err := m.checkShards(); err != nil {
		return err
	}
	return checkPages(m.Pages)
}

// checkPages checks references to pages.
func checkPages(pages []PageRef) error {
	for n, p := range pages {
		switch err := checkImage(p.Image); {
		case err != nil:
			return err
		case n > 0 && p.Image <= pages[n-1].Image:
			return newError(KindFormat, "page of %s: want one page for each image, sorted", p.Image)
		case p.Digest.Validate() != nil || p.Digest.Algorithm() != digest.SHA256:
			return newError(KindFormat, "page of %s: digest %.40q: want sha256", p.Image, string(p.Digest))
		case p.Size <= 0 || p.Size > MaxPage:
			return newError(KindTooLarge, "page of %s: %d bytes, want at most %d", p.Image, p.Size, MaxPage)
		}
	}
	return nil
}

// checkBlobs checks the references to the log and to the list of ops.
func (m Manifest) checkBlobs() error {
	if len(m.Log) > MaxLogParts {
		return newError(KindTooLarge, "the log has more than %d parts", MaxLogParts)
	}
	for _, ref := range append(slices.Clone(m.Log), m.Ops) {
		switch {
		case ref.Digest != "" && (ref.Digest.Validate() != nil || ref.Digest.Algorithm() != digest.SHA256):
			return newError(KindFormat, "log or list of ops: digest %.40q: want sha256", string(ref.Digest))
		case ref.Size < 0 || ref.Size > maxOps:
			return newError(KindTooLarge, "log or list of ops: %d bytes, want at most %d", ref.Size, maxOps)
		}
	}
	return nil
}

// checkImage checks that a repository is written as CRI writes it, with its host.
func checkImage(name string) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return newError(KindFormat, "image %.60q: %v", name, err)
	}
	if !reference.IsNameOnly(named) || named.Name() != name {
		return newError(KindFormat, "image %.60q: want a repository with its host, and no tag", name)
	}
	return nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// parseTime parses an annotation with a time; without one, the time is zero.
func parseTime(notes map[string]string, key string) (time.Time, error) {
	text := notes[key]
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !t.Equal(outside.Time(t)) {
		return time.Time{}, newError(KindFormat, "annotation %s: %.40q: want a time such as 2026-11-22T10:00:00Z", key, text)
	}
	return t.UTC(), nil
}

// SetPage sets the reference to the page of an image. The pages stay sorted.
func (m *Manifest) SetPage(ref PageRef) {
	at, found := slices.BinarySearchFunc(m.Pages, ref.Image, compareImage)
	if found {
		m.Pages[at] = ref
		return
	}
	m.Pages = slices.Insert(m.Pages, at, ref)
}

// LastMerged returns the last sorted ops that an annotation has space for.
func LastMerged(ops []string) []string { return ops[max(0, len(ops)-maxMerged):] }

// maxAhead is how far a catalog may be created after the reader's now: clocks differ.
const maxAhead = 24 * time.Hour

// MaxJump is how far a version, a version tag or a turn may be above the one before: else whoever once had a key, or
// may push, could use up all numbers.
const MaxJump = 1 << 20

// Known is the version that a reader verified last. The zero value: it verified none.
type Known struct {
	Version uint64
	Digest  digest.Digest
}

// Follows checks that a manifest is the catalog's next version for a reader that knows an
// earlier one: name, channel, version and time, in this order.
func (m Manifest) Follows(known Known, d digest.Digest, name, channel string, now time.Time) error {
	switch {
	case m.Name != name:
		return newError(KindName, "published as %s, want %s", m.Name, name)
	case m.Channel != channel:
		return newError(KindChannel, "it is of channel %s, want %s", m.Channel, channel)
	case m.Version < known.Version:
		return newError(KindOlder, "version %d is older than version %d, which was verified before", m.Version, known.Version)
	case m.Version == known.Version && d != known.Digest:
		return newError(KindChanged, "version %d was %s, and is %s now", m.Version, known.Digest, d)
	case known.Version > 0 && m.Version-known.Version >= MaxJump:
		return newError(KindFormat, "version %d is too far above version %d, which was verified before",
			m.Version, known.Version)
	case m.Created.After(now.Add(maxAhead)):
		return newError(KindFuture, "created at %s, which is in the future (now: %s)", formatTime(m.Created), formatTime(now))
	}
	return nil
}
