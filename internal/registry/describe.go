// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// Describe fetches the build of a digest for the node's platform: the manifest (in an index the matching one) and the
// image config, in two or three requests.
func (r *Registry) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if err := d.Validate(); err != nil {
		return release.Build{}, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	return each(ctx, r, repository, mayPull, func(e endpoint) (release.Build, error) {
		return e.describe(ctx, d, r.platform)
	})
}

func (e endpoint) describe(ctx context.Context, d digest.Digest, on platforms.MatchComparer) (release.Build, error) {
	from := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) { return e.document(ctx, desc) },
		Config: func(desc ocispec.Descriptor) ([]byte, error) {
			a, err := e.sized(ctx, "blobs", desc, "*/*", ocimanifest.MaxConfig)
			if err == nil {
				e.documents.keep(e.repository, desc.Digest, a.Body)
			}
			return a.Body, err
		},
	}
	build, err := from.Describe(ocispec.Descriptor{Digest: d, Size: -1}, on)
	var noAnswer *release.SourceError
	var other ocimanifest.NotImage
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		return release.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, release.ErrPlatform)
	case errors.As(err, &other):
		f := e.failed(other.Of(release.ErrNotImage))
		f.Answered = true // the digest has verified it: no host has anything else
		return release.Build{}, f
	case err != nil && !errors.As(err, &noAnswer):
		return release.Build{}, e.failed(err)
	}
	return release.Build(build), err
}

// document fetches a manifest or index by digest. A child of an index has the kind that the index names, whatever the
// host sends, as in containerd. It sends no request for one that ResolveTo has read and Resolve has located.
func (e endpoint) document(ctx context.Context, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	if kind, body := e.documents.read(e.repository, desc.Digest); body != nil {
		if doc, err := parseManifest(kind, body); err == nil {
			return doc, nil
		}
	}
	a, err := e.sized(ctx, "manifests", desc, acceptManifests, maxManifest)
	if err != nil {
		return ocimanifest.Document{}, answered(err)
	}
	var doc ocimanifest.Document
	if desc.Size < 0 {
		doc, err = parseManifest(a.Header.Get("Content-Type"), a.Body)
	} else {
		doc, err = ocimanifest.Parse(desc.MediaType, a.Body)
	}
	if err == nil {
		e.documents.keep(e.repository, desc.Digest, a.Body)
	}
	return doc, err
}

// sized fetches the content of a descriptor and verifies it.
func (e endpoint) sized(
	ctx context.Context, kind string, desc ocispec.Descriptor, accept string, limit int64,
) (transport.Answer, error) {
	a, err := e.get(ctx, e.url(kind, desc.Digest.String()), accept, limit)
	if err != nil {
		return transport.Answer{}, err
	}
	return a, verifySized(desc, a.Body)
}

// verifySized compares content with its descriptor. A negative size is unknown.
func verifySized(desc ocispec.Descriptor, content []byte) error {
	if desc.Size >= 0 && desc.Size != int64(len(content)) {
		return fmt.Errorf("%s: %d bytes, not %d", desc.Digest, len(content), desc.Size)
	}
	return verify(desc.Digest, content)
}
