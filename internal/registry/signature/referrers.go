// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// referrers tries the artifacts of the referrers API.
func (s *search) referrers(ctx context.Context, d digest.Digest) bool {
	list, err := s.from.Referrers(ctx, s.owner.repository, d)
	if s.absent("referrers", err) {
		return false
	}
	return s.artifacts(ctx, "referrers", list, d)
}

// fallbackTag tries the list under the tag that replaces the API on older registries: "Referrers Tag Schema" of the
// distribution specification.
func (s *search) fallbackTag(ctx context.Context, d digest.Digest) bool {
	tag := tagOf(d)
	mediaType, body, err := s.from.Manifest(ctx, s.owner.repository, tag)
	if s.absent(tag, err) {
		return false
	}
	doc, err := ocimanifest.Parse(mediaType, body)
	if err != nil {
		s.refuse(tag, err)
		return false
	}
	return s.artifacts(ctx, tag, doc.Manifests, d)
}

// artifacts tries the artifacts of a list that may be signatures.
func (s *search) artifacts(ctx context.Context, where string, list []ocispec.Descriptor, d digest.Digest) bool {
	var due []ocispec.Descriptor
	for _, desc := range list {
		if formatOf(desc) != "" && !s.seen[desc.Digest] {
			s.seen[desc.Digest] = true
			due = append(due, desc)
		}
	}
	if len(due) > maxSignatures {
		s.refuse(where, fmt.Errorf("%d signatures, at most %d", len(due), maxSignatures))
		return false
	}
	for _, desc := range due {
		if ctx.Err() != nil {
			break
		}
		if s.artifact(ctx, desc, d) {
			return true
		}
	}
	return false
}

// formatOf returns the format of an artifact in a list that may be a signature; empty if it cannot be. The list is not
// signed and only saves requests. Some registries list another artifact type than the manifest has, but copy its
// annotations.
func formatOf(desc ocispec.Descriptor) string {
	switch kind := desc.Annotations[predicateAnnotation]; {
	case desc.ArtifactType == simpleArtifact:
		return SimpleSigning
	case kind == signPredicate, kind == "" && isBundle(desc.ArtifactType):
		return Bundle
	}
	return ""
}

// artifact fetches the manifest of an artifact, which has its type, and verifies its signatures.
func (s *search) artifact(ctx context.Context, desc ocispec.Descriptor, d digest.Digest) bool {
	what := map[string]string{Bundle: "bundle ", SimpleSigning: "signatures "}[formatOf(desc)] + desc.Digest.String()
	mediaType, body, err := s.from.Manifest(ctx, s.owner.repository, desc.Digest.String())
	if err != nil {
		s.torn(what, err)
		return false
	}
	doc, err := ocimanifest.Parse(mediaType, body)
	if err != nil {
		s.refuse(what, err)
		return false
	}
	is := describe(body)
	if is.ArtifactType == simpleArtifact {
		return s.layers(ctx, what, doc.Layers, d)
	}
	if formatOf(desc) == Bundle {
		is.ArtifactType = bundleMediaType // the layer shows the type
	}
	switch {
	case formatOf(is) == "":
		return false
	case len(doc.Layers) != 1 || !isBundle(doc.Layers[0].MediaType):
		s.refuse(what, errors.New("want one layer with a bundle"))
		return false
	case doc.Layers[0].Size > maxBundle:
		s.refuse(what, fmt.Errorf("too large: %d bytes, at most %d", doc.Layers[0].Size, maxBundle))
		return false
	}
	data, err := s.from.Blob(ctx, s.owner.repository, doc.Layers[0])
	if err != nil {
		s.torn(what, err)
		return false
	}
	by, ok := s.bundle(ctx, what, data, d)
	return ok && s.accept(by, Bundle)
}

// describe returns a manifest's descriptor as in a registry's list: a fallback tag's list does not copy the
// annotations. An artifact without a type has the type of its config (OCI image specification, "artifactType").
func describe(manifest []byte) ocispec.Descriptor {
	var m struct {
		ArtifactType string             `json:"artifactType"`
		Config       ocispec.Descriptor `json:"config"`
		Annotations  map[string]string  `json:"annotations"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return ocispec.Descriptor{}
	}
	return ocispec.Descriptor{ArtifactType: cmp.Or(m.ArtifactType, m.Config.MediaType), Annotations: m.Annotations}
}
