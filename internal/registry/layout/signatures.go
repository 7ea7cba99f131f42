// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Manifest reads the manifest or index of a tag or digest, of any kind, and returns its
// media type. A digest need not be an entry of an index.json: the children of an index are
// not. The error is release.ErrNotFound for an unknown tag.
func (l *Layout) Manifest(ctx context.Context, repository, tagOrDigest string) (string, []byte, error) {
	if err := ctx.Err(); err != nil {
		return "", nil, l.failed(repository, err)
	}
	d, err := digest.Parse(tagOrDigest)
	if err != nil {
		resolved, err := l.Resolve(ctx, release.Reference{Repository: repository, Tag: tagOrDigest})
		if err != nil {
			return "", nil, err
		}
		d = resolved.Digest
	}
	var kind string
	body, err := firstOf(l, repository, d, func(at home) (body []byte, err error) {
		kind, body, err = l.anyManifest(at, d)
		return body, err
	})
	return kind, body, err
}

// anyManifest reads a manifest of a layout, an entry or not.
func (l *Layout) anyManifest(at home, d digest.Digest) (kind string, body []byte, err error) {
	desc, isEntry := at.entries[d]
	if !isEntry {
		file, size, err := l.place.open(at.blobPath(d))
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", d, errBlob)
		}
		file.Close()
		desc = ocispec.Descriptor{Digest: d, Size: size}
	}
	if body, err = l.document(at, desc, maxManifest); err != nil {
		return "", nil, err
	}
	if err := ocimanifest.CheckBounds(body); err != nil {
		return "", nil, err
	}
	return cmp.Or(desc.MediaType, kindOf(body)), body, nil
}

// kindOf returns the media type in a manifest, which is optional, or guesses it.
func kindOf(body []byte) string {
	var manifest struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	switch err := json.Unmarshal(body, &manifest); {
	case err == nil && manifest.MediaType != "":
		return manifest.MediaType
	case manifest.Manifests != nil:
		return ocispec.MediaTypeImageIndex
	}
	return ocispec.MediaTypeImageManifest
}

// Blob reads a small blob, as signatures are, and verifies its size and digest.
func (l *Layout) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.failed(repository, err)
	}
	return firstOf(l, repository, desc.Digest, func(at home) ([]byte, error) {
		return l.document(at, desc, ocimanifest.MaxSignatureBlob)
	})
}

// Referrers lists the entries that refer to a digest. They have an artifact type, as oras writes it. It returns
// release.ErrNotFound if there are none.
func (l *Layout) Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error) {
	var list []ocispec.Descriptor
	for _, at := range l.homes[repository] {
		for _, desc := range at.entries {
			if err := ctx.Err(); err != nil {
				return nil, l.failed(repository, err)
			}
			if desc.ArtifactType == "" {
				continue
			}
			refers, err := l.refersTo(at, desc, d)
			if err != nil {
				return nil, l.failed(repository, err)
			}
			if refers {
				list = append(list, desc)
			}
		}
	}
	if len(list) == 0 {
		return nil, l.failed(repository, fmt.Errorf("referrers of %s: %w", outside.Text(d.String()), release.ErrNotFound))
	}
	slices.SortFunc(list, func(a, b ocispec.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	return list, nil
}

// refersTo reports whether the subject of a manifest is d.
func (l *Layout) refersTo(at home, desc ocispec.Descriptor, d digest.Digest) (bool, error) {
	body, err := l.document(at, desc, maxManifest)
	if err != nil {
		return false, err
	}
	if err := ocimanifest.CheckBounds(body); err != nil {
		return false, fmt.Errorf("%s: %w", desc.Digest, err)
	}
	var artifact struct {
		Subject ocispec.Descriptor `json:"subject"`
	}
	if err := json.Unmarshal(body, &artifact); err != nil {
		return false, fmt.Errorf("%s: %w", desc.Digest, err)
	}
	return artifact.Subject.Digest == d, nil
}
