// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Manifest reads the manifest or index that a tag or digest names, whatever it is
// of, with its media type. By digest, it need not stand in an index.json: the
// children of an index do not. The error is release.ErrNotFound for a tag that the
// place does not name.
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
	kind, body, err := l.whole(repository, d)
	if err != nil {
		return "", nil, l.failed(repository, err)
	}
	return kind, body, nil
}

// whole reads a manifest from the first layout of the repository that has it.
func (l *Layout) whole(repository string, d digest.Digest) (kind string, body []byte, err error) {
	err = fmt.Errorf("%s: %w", d, errBlob)
	for _, at := range l.homes[repository] {
		desc, named := at.entries[d]
		if !named {
			file, size, failed := l.place.open(path.Join(at.dir, blobsDir, d.Algorithm().String(), d.Encoded()))
			if failed != nil {
				continue
			}
			file.Close()
			desc = ocispec.Descriptor{Digest: d, Size: size}
		}
		if body, err = l.document(at, desc, maxManifest); err != nil {
			continue
		}
		if err = ocimanifest.CheckBounds(body); err != nil {
			continue
		}
		if kind = desc.MediaType; kind == "" {
			kind = kindOf(body)
		}
		return kind, body, nil
	}
	return "", nil, err
}

// kindOf is the media type that a manifest says it has; OCI leaves it open.
func kindOf(body []byte) string {
	var said struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	switch err := json.Unmarshal(body, &said); {
	case err == nil && said.MediaType != "":
		return said.MediaType
	case said.Manifests != nil:
		return ocispec.MediaTypeImageIndex
	}
	return ocispec.MediaTypeImageManifest
}

// Blob reads a small blob, as signatures are; it has the size and the digest of
// its descriptor.
func (l *Layout) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.failed(repository, err)
	}
	err := fmt.Errorf("%s: %w", outside.Text(desc.Digest.String()), errBlob)
	for _, at := range l.homes[repository] {
		body, failed := l.document(at, desc, ocimanifest.MaxSignatureBlob)
		if failed == nil {
			return body, nil
		}
		if !errors.Is(failed, errBlob) {
			err = failed
		}
	}
	return nil, l.failed(repository, err)
}

// Referrers lists the entries that refer to a digest; they have an artifact type,
// as oras writes them. The error is release.ErrNotFound where there is none.
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

// refersTo tells whether a manifest has the digest for its subject.
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
