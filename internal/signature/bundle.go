// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// The names of cosign's bundles
// (https://github.com/sigstore/cosign/blob/main/specs/BUNDLE_SPEC.md,
// https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
const (
	bundleMediaType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
	signPredicate       = "https://sigstore.dev/cosign/sign/v1"
	inTotoPayload       = "application/vnd.in-toto+json"
	inTotoStatement     = "https://in-toto.io/Statement/v1"
)

// bundle is the part of a sigstore bundle that counts here, as JSON of protobuf-specs'
// sigstore_bundle.proto. Only our keys prove anything: certificates, log entries,
// timestamps and the digest beside a message signature are ignored.
type bundle struct {
	MediaType string `json:"mediaType"`
	Envelope  *struct {
		Payload     string `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
	Message *struct {
		Signature string `json:"signature"`
	} `json:"messageSignature"`
}

// statement is the signed content of an envelope; in-toto has other keys ignored.
type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
	Subject       []struct {
		Name   string            `json:"name"` // cosign leaves it out
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

// errAttestation is a bundle that is no signature.
var errAttestation = errors.New("an attestation, no signature")

// referrers tries the bundles that the referrers API lists.
func (s *search) referrers(ctx context.Context, d digest.Digest) (Verdict, bool) {
	list, err := s.from.Referrers(ctx, s.owner.repository, d)
	if s.absent("referrers", err) {
		return Verdict{}, false
	}
	return s.bundles(ctx, "referrers", list, d)
}

// fallbackTag tries the list under the tag that replaces the API on older registries:
// "Referrers Tag Schema" of the distribution specification.
func (s *search) fallbackTag(ctx context.Context, d digest.Digest) (Verdict, bool) {
	tag := tagOf(d)
	mediaType, body, err := s.from.Manifest(ctx, s.owner.repository, tag)
	if s.absent(tag, err) {
		return Verdict{}, false
	}
	doc, err := ocimanifest.Parse(mediaType, body)
	if err != nil {
		s.refuse(tag, err)
		return Verdict{}, false
	}
	return s.bundles(ctx, tag, doc.Manifests, d)
}

// bundles tries the bundles of a list that may be signatures.
func (s *search) bundles(
	ctx context.Context, where string, list []ocispec.Descriptor, d digest.Digest,
) (Verdict, bool) {
	var due []ocispec.Descriptor
	for _, desc := range list {
		if mayBeSignature(desc) && !s.seen[desc.Digest] {
			s.seen[desc.Digest] = true
			due = append(due, desc)
		}
	}
	if len(due) > maxSignatures {
		s.refuse(where, fmt.Errorf("%d bundles, at most %d", len(due), maxSignatures))
		return Verdict{}, false
	}
	for _, desc := range due {
		if ctx.Err() != nil {
			break
		}
		if by, ok := s.artifact(ctx, "bundle "+desc.Digest.String(), desc, d); ok {
			return Verdict{Key: by.fingerprint, Format: Bundle, Signed: d}, true
		}
	}
	return Verdict{}, false
}

// mayBeSignature filters a list, which is not signed, to save requests. Some registries
// list another artifact type than the manifest has, but copy its annotations.
func mayBeSignature(desc ocispec.Descriptor) bool {
	kind := desc.Annotations[predicateAnnotation]
	return kind == signPredicate || kind == "" && desc.ArtifactType == bundleMediaType
}

// annotations reads those of a manifest: a fallback tag's list does not copy them.
func annotations(manifest []byte) map[string]string {
	var m struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil
	}
	return m.Annotations
}

// artifact fetches and verifies the bundle of an artifact.
func (s *search) artifact(ctx context.Context, what string, desc ocispec.Descriptor, d digest.Digest) (key, bool) {
	mediaType, body, err := s.from.Manifest(ctx, s.owner.repository, desc.Digest.String())
	if err != nil {
		s.torn(what, err)
		return key{}, false
	}
	doc, err := ocimanifest.Parse(mediaType, body)
	switch {
	case err != nil:
		s.refuse(what, err)
		return key{}, false
	case !mayBeSignature(ocispec.Descriptor{ArtifactType: bundleMediaType, Annotations: annotations(body)}):
		return key{}, false
	case len(doc.Layers) != 1 || doc.Layers[0].MediaType != bundleMediaType:
		s.refuse(what, errors.New("not of one layer with a bundle"))
		return key{}, false
	case doc.Layers[0].Size > maxBundle:
		s.refuse(what, fmt.Errorf("too large: %d bytes, at most %d", doc.Layers[0].Size, maxBundle))
		return key{}, false
	}
	data, err := s.from.Blob(ctx, s.owner.repository, doc.Layers[0])
	if err != nil {
		s.torn(what, err)
		return key{}, false
	}
	return s.bundle(ctx, what, data, d)
}

// bundle verifies a bundle. For a message signature it fetches the signed manifest.
func (s *search) bundle(ctx context.Context, what string, data []byte, d digest.Digest) (key, bool) {
	b, err := parseBundle(data)
	var by key
	switch {
	case err != nil:
	case b.Message != nil:
		_, image, fetchErr := s.from.Manifest(ctx, s.owner.repository, d.String())
		if fetchErr != nil {
			s.torn(what+": manifest that it signs", fetchErr)
			return key{}, false
		}
		by, err = s.ring.message(b, image, d)
	default:
		by, err = s.ring.statement(b, s.owner, d)
	}
	if errors.Is(err, errAttestation) {
		return key{}, false
	}
	if err != nil {
		s.refuse(what, err)
	}
	return by, err == nil
}

// parseBundle reads a bundle. It verifies nothing.
func parseBundle(data []byte) (bundle, error) {
	var b bundle
	if err := unmarshal(data, &b, true); err != nil {
		return bundle{}, err
	}
	switch {
	case b.MediaType != bundleMediaType:
		return bundle{}, fmt.Errorf("media type %q", outside.Text(b.MediaType))
	case (b.Envelope == nil) == (b.Message == nil):
		return bundle{}, errors.New("must have either envelope or message signature")
	case b.Envelope != nil && len(b.Envelope.Signatures) != 1:
		return bundle{}, fmt.Errorf("envelope: %d signatures, not 1", len(b.Envelope.Signatures))
	}
	return b, nil
}

// statement verifies an envelope: first its signature, then its content.
func (r ring) statement(b bundle, of owner, d digest.Digest) (key, error) {
	if b.Envelope.PayloadType != inTotoPayload {
		return key{}, fmt.Errorf("envelope: payload type %q", outside.Text(b.Envelope.PayloadType))
	}
	content, err := decode(b.Envelope.Payload, 2*maxBundle)
	if err != nil {
		return key{}, fmt.Errorf("envelope: payload: %w", err)
	}
	sig, err := decode(b.Envelope.Signatures[0].Sig, maxEncoded)
	if err != nil {
		return key{}, fmt.Errorf("envelope: signature: %w", err)
	}
	by, verified, err := r.verifyEnvelope(inTotoPayload, content, sig)
	if err != nil {
		return key{}, err
	}
	var s statement
	if err := unmarshal(verified, &s, true); err != nil {
		return key{}, fmt.Errorf("statement: %w", err)
	}
	switch {
	case s.PredicateType != signPredicate:
		return key{}, errAttestation
	case s.Type != inTotoStatement:
		return key{}, fmt.Errorf("statement: type %q", outside.Text(s.Type))
	}
	return by, s.checkSubject(of, d)
}

// checkSubject wants a subject with the digest, and with the owner's name or none: cosign
// writes no name.
func (s statement) checkSubject(of owner, d digest.Digest) error {
	err := errors.New("statement: is for another digest")
	for _, subject := range s.Subject {
		if subject.Digest[d.Algorithm().String()] != d.Encoded() {
			continue
		}
		if subject.Name == "" {
			return nil
		}
		if err = of.checkIdentity(subject.Name, d); err == nil {
			return nil
		}
	}
	return err
}

// message verifies a signature over the bytes of the manifest with digest d.
func (r ring) message(b bundle, manifest []byte, d digest.Digest) (key, error) {
	sig, err := decode(b.Message.Signature, maxEncoded)
	if err != nil {
		return key{}, fmt.Errorf("message signature: %w", err)
	}
	if d.Algorithm().FromBytes(manifest) != d {
		return key{}, fmt.Errorf("message signature: the manifest is not %s", d)
	}
	return r.verify(manifest, sig)
}
