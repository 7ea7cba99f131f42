// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// The names of cosign's bundles
// (https://github.com/sigstore/cosign/blob/main/specs/BUNDLE_SPEC.md,
// https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
const (
	bundleMediaType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	bundleVersionAside  = "application/vnd.dev.sigstore.bundle+json;version=0.3" // clients must also accept this form
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
	signPredicate       = "https://sigstore.dev/cosign/sign/v1"
	inTotoPayload       = "application/vnd.in-toto+json"
	inTotoStatement     = "https://in-toto.io/Statement/v1"
)

// bundle is the relevant part of a sigstore bundle, as JSON of protobuf-specs' sigstore_bundle.proto. Only the trusted
// keys count: certificates, log entries, timestamps and the digest next to a message signature are ignored.
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

// statement is the signed content of an envelope; in-toto requires to ignore other keys.
type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
	Subject       []struct {
		Name   string            `json:"name"` // cosign omits it
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

// errAttestation is a bundle that is not a signature.
var errAttestation = errors.New("an attestation, not a signature")

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

// parseBundle parses a bundle without verifying it.
func parseBundle(data []byte) (bundle, error) {
	var b bundle
	if err := unmarshal(data, &b, true); err != nil {
		return bundle{}, err
	}
	switch {
	case !isBundle(b.MediaType):
		return bundle{}, fmt.Errorf("media type %q", outside.Text(b.MediaType))
	case (b.Envelope == nil) == (b.Message == nil):
		return bundle{}, errors.New("must have either envelope or message signature")
	case b.Envelope != nil && len(b.Envelope.Signatures) != 1:
		return bundle{}, fmt.Errorf("envelope: %d signatures, not 1", len(b.Envelope.Signatures))
	}
	return b, nil
}

// isBundle reports whether a media type is that of bundles (protobuf-specs, sigstore_bundle.proto, "media_type").
func isBundle(mediaType string) bool {
	return mediaType == bundleMediaType || mediaType == bundleVersionAside
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

// checkSubject requires a subject with the digest, and with the owner's name or none: cosign writes no name.
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
