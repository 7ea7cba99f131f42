// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"mime"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// acceptManifests are the kinds of manifest from which containerd runs images, in its order. A registry with OCI
// manifests answers 404 to a request that does not list their types.
var acceptManifests = strings.Join([]string{
	images.MediaTypeDockerSchema2Manifest,
	images.MediaTypeDockerSchema2ManifestList,
	ocispec.MediaTypeImageManifest,
	ocispec.MediaTypeImageIndex,
}, ", ")

// parseManifest parses a body of the kind in its Content-Type.
func parseManifest(contentType string, body []byte) (ocimanifest.Document, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: %w", outside.Text(contentType), err)
	}
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: not an image", outside.Text(kind))
	}
	return ocimanifest.Parse(kind, body)
}

// manifest is a manifest or index from a host.
type manifest struct {
	desc     ocispec.Descriptor
	body     []byte // nil after a HEAD request
	insecure bool
}

// manifest fetches a manifest from one host. Without a given digest, it must have the digest that the host sends, if
// any.
func (e endpoint) manifest(ctx context.Context, name string, d digest.Digest) (manifest, error) {
	a, err := e.get(ctx, e.url("manifests", name), acceptManifests, maxManifest)
	if err != nil {
		return manifest{}, err
	}
	return e.read(a, d)
}

// read returns the manifest of an answer, which must have the digest; empty: the one that the host sends.
func (e endpoint) read(a transport.Answer, d digest.Digest) (manifest, error) {
	if d == "" {
		d = digest.Digest(a.Header.Get(digestHeader))
	}
	if d == "" {
		d = digest.FromBytes(a.Body)
	} else if err := verify(d, a.Body); err != nil {
		return manifest{}, e.failed(err)
	}
	doc, err := parseManifest(a.Header.Get("Content-Type"), a.Body)
	if err != nil {
		return manifest{}, e.failed(err)
	}
	desc := ocispec.Descriptor{MediaType: doc.MediaType, Digest: d, Size: int64(len(a.Body))}
	return manifest{desc, a.Body, a.Insecure}, nil
}
