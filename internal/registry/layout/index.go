// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

// home is one layout of a place: its directory, and the entries of its index, also those
// without a name.
type home struct {
	dir     string
	entries map[digest.Digest]ocispec.Descriptor
}

// blobPath returns the path of a blob with a valid digest.
func (h home) blobPath(d digest.Digest) string {
	return path.Join(h.dir, blobsDir, d.Algorithm().String(), d.Encoded())
}

// load reads all indexes and counts the entries without a usable name.
func (l *Layout) load() (unnamed int, err error) {
	dirs, err := l.place.layouts()
	if err != nil {
		return 0, err
	}
	if len(dirs) == 0 {
		return 0, fmt.Errorf("%w: no file %s", ErrNotLayout, markerFile)
	}
	budget := int64(maxIndexes)
	for _, dir := range dirs {
		index, size, err := readIndex(l.place, dir)
		if err != nil {
			return 0, err
		}
		if budget -= size; budget < 0 {
			return 0, fmt.Errorf("%s: %w: over %d bytes in all", indexFile, outside.ErrTooLarge, maxIndexes)
		}
		unnamed += l.addIndex(dir, index)
	}
	if len(l.names) == 0 {
		return unnamed, ErrUnnamed
	}
	return unnamed, nil
}

// readIndex checks the version of a layout and reads its index.
func readIndex(p place, dir string) ([]ocispec.Descriptor, int64, error) {
	marker, err := read(p, path.Join(dir, markerFile), maxMarker)
	if err != nil {
		return nil, 0, err
	}
	var layout ocispec.ImageLayout
	if err := json.Unmarshal(marker, &layout); err != nil || layout.Version != ocispec.ImageLayoutVersion {
		return nil, 0, fmt.Errorf("%w: %s: version %q, not %s",
			ErrNotLayout, shown(path.Join(dir, markerFile)), outside.Text(layout.Version), ocispec.ImageLayoutVersion)
	}
	data, err := read(p, path.Join(dir, indexFile), maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotLayout, err)
	}
	if err != nil {
		return nil, 0, err
	}
	d, err := ocimanifest.Parse(ocispec.MediaTypeImageIndex, data)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", shown(path.Join(dir, indexFile)), err)
	}
	return d.Manifests, int64(len(data)), nil
}

// addIndex adds the images of one index, and counts those without a usable name.
func (l *Layout) addIndex(dir string, index []ocispec.Descriptor) (unnamed int) {
	h := home{dir: dir, entries: map[digest.Digest]ocispec.Descriptor{}}
	repositories := map[string]bool{}
	own := repositoryOf(dir)
	if own != "" {
		repositories[own] = true
	}
	for _, entry := range index {
		if !images.IsManifestType(entry.MediaType) && !images.IsIndexType(entry.MediaType) {
			continue
		}
		h.entries[entry.Digest] = entry
		names := namesOf(entry, own)
		if len(names) == 0 {
			unnamed++
		}
		for _, ref := range names {
			l.addName(ref, entry.Digest)
			repositories[ref.Repository] = true
		}
	}
	for repository := range repositories {
		l.homes[repository] = append(l.homes[repository], h)
	}
	return unnamed
}

// addName names a digest. A name with two digests is ambiguous, because an index has no order.
func (l *Layout) addName(ref release.Reference, d digest.Digest) {
	n, exists := l.names[ref]
	switch {
	case !exists:
		l.names[ref] = named{digest: d}
		l.tags[ref.Repository] = append(l.tags[ref.Repository], ref.Tag)
	case n.digest != d:
		n.other = d
		l.names[ref] = n
	}
}

// namesOf returns the names of an entry; own is the repository for bare tags, or empty.
func namesOf(entry ocispec.Descriptor, own string) []release.Reference {
	var names []release.Reference
	for _, key := range []string{images.AnnotationImageName, ocispec.AnnotationRefName} {
		if ref, ok := nameOf(entry.Annotations[key], own); ok {
			names = append(names, ref)
		}
	}
	return names
}

// nameOf parses a whole name or a bare tag, which has none of the separators of a whole name.
func nameOf(text, own string) (release.Reference, bool) {
	if !strings.ContainsAny(text, ":/@") {
		return release.Reference{Repository: own, Tag: text}, own != "" && tags.Classify(text) != tags.ClassInvalid
	}
	ref, err := release.ParseReference(text)
	return ref, err == nil && ref.Tag != ""
}

// repositoryOf returns the repository that a directory in a tree stands for, or "". It
// must be a normalised repository: "images" is not docker.io/library/images.
func repositoryOf(dir string) string {
	name, err := release.NormalizeRepository(dir)
	if err != nil || name != dir {
		return ""
	}
	return name
}

// errBlob is a missing blob. It is neither the fs.ErrNotExist of the place nor the release.ErrNotFound of a source.
var errBlob = errors.New("blob is missing: the layout is incomplete")

// firstOf reads a blob from the first layout of the repository that has it.
func firstOf[T any](l *Layout, repository string, d digest.Digest, read func(home) (T, error)) (T, error) {
	err := fmt.Errorf("%s: %w", outside.Text(d.String()), errBlob)
	for _, at := range l.homes[repository] {
		found, readErr := read(at)
		if readErr == nil {
			return found, nil
		}
		if !errors.Is(readErr, errBlob) {
			err = readErr
		}
	}
	var none T
	return none, l.failed(repository, err)
}

// blob opens a blob of a layout and compares its size with the descriptor.
func (l *Layout) blob(at home, desc ocispec.Descriptor) (io.ReadCloser, error) {
	d := desc.Digest
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w", outside.Text(d.String()), err)
	}
	file, size, err := l.place.open(at.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d, errBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if size != desc.Size {
		file.Close()
		return nil, fmt.Errorf("%s: blob has %d bytes, not %d", d, size, desc.Size)
	}
	return file, nil
}

// document reads a small blob and verifies its digest.
func (l *Layout) document(at home, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if desc.Size > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes", desc.Digest, outside.ErrTooLarge, desc.Size)
	}
	file, err := l.blob(at, desc)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := outside.ReadAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", desc.Digest, nodefile.Plain(err))
	}
	if err := verify(desc.Digest, desc.Digest.Algorithm().FromBytes(data)); err != nil {
		return nil, err
	}
	return data, nil
}

// manifest reads a manifest or index.
func (l *Layout) manifest(at home, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	data, err := l.document(at, desc, maxManifest)
	if err != nil {
		return ocimanifest.Document{}, err
	}
	return ocimanifest.Parse(desc.MediaType, data)
}

func verify(want, got digest.Digest) error {
	if got != want {
		return fmt.Errorf("blob %s: content has digest %s", want, got)
	}
	return nil
}
