// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// The names of simple signing in cosign's specification.
const (
	simpleMediaType  = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleAnnotation = "dev.cosignproject.cosign/signature"
	simpleType       = "cosign container image signature"
	// simpleArtifact is the type of a signature image that is a referrer and has no tag.
	simpleArtifact = "application/vnd.dev.cosign.artifact.sig.v1+json"
)

// payload is the content of simple signing
// (https://github.com/containers/image/blob/main/docs/containers-signature.5.md). An unknown key of critical makes it
// invalid.
type payload struct {
	Critical struct {
		Identity struct {
			DockerReference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			DockerManifestDigest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// lineEnds removes the line ends of base64(1), which `cosign attach signature` keeps in the annotation.
var lineEnds = strings.NewReplacer("\r", "", "\n", "")

// simpleSigning tries the layers of the tag sha256-HEX.sig.
func (s *search) simpleSigning(ctx context.Context, d digest.Digest) bool {
	tag := tagOf(d) + ".sig"
	return s.layers(ctx, tag, s.tagged(ctx, tag).Layers, d)
}

// tagged returns the manifest or index of a tag; the zero Document if there is none that can be read.
func (s *search) tagged(ctx context.Context, tag string) ocimanifest.Document {
	mediaType, body, err := s.from.Manifest(ctx, s.owner.repository, tag)
	if s.absent(tag, err) {
		return ocimanifest.Document{}
	}
	doc, err := ocimanifest.Parse(mediaType, body)
	if err != nil {
		s.refuse(tag, err)
		return ocimanifest.Document{}
	}
	return doc
}

// layers tries the layers of a signature image from any place.
func (s *search) layers(ctx context.Context, what string, all []ocispec.Descriptor, d digest.Digest) bool {
	if len(all) > maxSignatures {
		s.refuse(what, fmt.Errorf("%d layers, at most %d", len(all), maxSignatures))
		return false
	}
	for i, layer := range all {
		if layer.MediaType != simpleMediaType || ctx.Err() != nil {
			continue
		}
		if by, ok := s.layer(ctx, fmt.Sprintf("%s: layer %d", what, i), layer, d); ok && s.accept(by, SimpleSigning) {
			return true
		}
	}
	return false
}

// layer fetches and verifies one payload.
func (s *search) layer(ctx context.Context, what string, layer ocispec.Descriptor, d digest.Digest) (key, bool) {
	sig, ok := layer.Annotations[simpleAnnotation]
	switch {
	case !ok:
		s.refuse(what, fmt.Errorf("no annotation %s", simpleAnnotation))
		return key{}, false
	case layer.Size > maxPayload:
		s.refuse(what, fmt.Errorf("payload too large: %d bytes, at most %d", layer.Size, maxPayload))
		return key{}, false
	}
	data, err := s.from.Blob(ctx, s.owner.repository, layer)
	if err != nil {
		s.torn(what, err)
		return key{}, false
	}
	by, err := s.ring.simple(data, sig, s.owner, d)
	if err != nil {
		s.refuse(what, err)
	}
	return by, err == nil
}

// simple verifies a payload: first its signature, then its content.
func (r ring) simple(data []byte, encoded string, of owner, d digest.Digest) (key, error) {
	sig, err := decode(lineEnds.Replace(encoded), maxEncoded)
	if err != nil {
		return key{}, fmt.Errorf("annotation: %w", err)
	}
	by, err := r.verify(data, sig)
	if err != nil {
		return key{}, err
	}
	var p payload
	if err := unmarshal(data, &p, false); err != nil {
		return key{}, fmt.Errorf("payload: %w", err)
	}
	critical := p.Critical
	switch signed := critical.Image.DockerManifestDigest; {
	case critical.Type != simpleType:
		return key{}, fmt.Errorf("payload: type %q, not %q", outside.Text(critical.Type), simpleType)
	case signed != d.String():
		return key{}, fmt.Errorf("payload: is for %q", outside.Text(signed))
	}
	return by, of.checkIdentity(critical.Identity.DockerReference, d)
}

// tagOf returns the tag for a digest.
func tagOf(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() }

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
	return s.artifacts(ctx, tag, s.tagged(ctx, tag).Manifests, d)
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
