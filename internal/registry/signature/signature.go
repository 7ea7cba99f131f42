// SPDX-License-Identifier: Apache-2.0

// Package signature verifies cosign's signatures of images with public keys on this node: no certificates, no
// transparency log, no trust roots from the network.
//
// # Words
//
// A signature covers a digest: of an index, or of the image for one platform. Its identity is the repository under
// which the signer published the image. A key is a PEM file with a public key; its fingerprint is the SHA-256 of its
// SubjectPublicKeyInfo in DER, as `openssl pkey -pubin -outform DER | sha256sum` prints it. There are two formats:
//
//   - Simple signing: the image sha256-HEX.sig in the same repository, in which
//     each layer is a payload with its signature as an annotation
//     (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md).
//     SUSE uses it, and cosign did before version 3. With
//     --registry-referrers-mode=oci-1-1 cosign 2 made this image an artifact that
//     refers to the digest, as a bundle does.
//   - Bundle: an artifact that refers to the digest (OCI distribution
//     specification 1.1, "Listing Referrers"), found by the referrers API or by
//     the tag sha256-HEX, with a sigstore bundle of version 0.3: an in-toto
//     statement in a DSSE envelope, or a signature over the manifest itself.
//
// # Promises
//
//   - A signature is valid if one of the keys signed exactly the received bytes. Only
//     then are the bytes decoded, and digest, kind and identity compared. Ambiguous JSON
//     is rejected.
//   - The identity must be the repository in the pod manifest, also for a mirror, or one
//     that the configured rewrites map to it. cosign's bundles have no identity: there,
//     the publisher's keys may sign any repository.
//   - An attestation (SBOM, provenance, scan) is not a signature.
//   - Signatures of old images stay valid: other packages refuse lower versions.
//   - Changed key files are read before each verification. A key that is broken, or
//     that users other than root may write, is logged and ignored.
//   - Size and count of all input are limited (limits.go).
//
// Why sigstore's pkg/signature and not sigstore-go: keys are on the node, and TUF, Rekor, Fulcio and timestamps would
// add 4 MB and 55 modules. An unknown version of the bundle does not count until a person has read it. Signatures are
// asked for in the order tag sha256-HEX.sig, referrers API, tag sha256-HEX, for the index, then for the image, until
// one is valid. A bundle names no repository: a mirror could serve one signed image as another of the same publisher,
// unless their keys differ.
package signature

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Errors of Verify. After any other error, the signatures are unknown.
var (
	// ErrUnsigned: there is no signature yet: build services sign after publishing the tags.
	ErrUnsigned = release.ErrUnsigned
	// ErrWrong: there are signatures, but none is valid for this digest, this repository and these keys.
	ErrWrong = release.ErrForged
	// ErrNoKeys: there is no usable key.
	ErrNoKeys = errors.New("no usable public key")
	// ErrFewKeys: there are fewer usable keys than must sign.
	ErrFewKeys = errors.New("too few usable public keys")
)

// The formats of signatures.
const (
	SimpleSigning = "simple signing"
	Bundle        = "bundle"
)

// Fetcher is the source of images and their signatures. It returns release.ErrNotFound only for objects that certainly
// do not exist.
type Fetcher interface {
	// Manifest returns the manifest or index of a tag or digest, with its media type; a
	// digest is verified.
	Manifest(ctx context.Context, repository, tagOrDigest string) (mediaType string, body []byte, err error)
	// Blob returns a blob; size and digest are verified.
	Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error)
	// Referrers lists the manifests that refer to a digest; it returns release.ErrNotFound if the source has no such
	// list.
	Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error)
}

// Verdict describes a valid signature, the first one if several are required.
type Verdict struct {
	Keys   []string      // fingerprints, sha256:HEX, of as many keys as required
	Format string        // SimpleSigning or Bundle
	Signed digest.Digest // the requested digest, or the platform's
}

// Options configure a Verifier.
type Options struct {
	// Dirs are the directories with keys (*.pem).
	Dirs []string
	// Require is how many of the keys must have signed; 0: one.
	Require int
	// Rewrites are the rewrites used for rendering: signatures of a repository are valid for its rewritten name.
	Rewrites []manifests.Rewrite
	// Log may be nil.
	Log *slog.Logger
}

// Verifier verifies signatures. It is safe for concurrent use.
type Verifier struct {
	keys     keys
	rewrites []manifests.Rewrite
	log      *slog.Logger
}

// New returns a verifier. It reads no key yet.
func New(o Options) *Verifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Verifier{
		keys:     keys{dirs: slices.Clone(o.Dirs), require: max(o.Require, 1), log: o.Log},
		rewrites: slices.Clone(o.Rewrites), log: o.Log,
	}
}

// Keys returns the fingerprints of the current keys, sorted, and the rewrites. A refusal stays valid while both are
// unchanged.
func (v *Verifier) Keys(ctx context.Context) ([]string, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	fingerprints := ring.fingerprints()
	for _, r := range v.rewrites {
		fingerprints = append(fingerprints, r.From+"="+r.To)
	}
	return fingerprints, nil
}

// Trusts reports whether at least the required number of these keys is trusted.
func (v *Verifier) Trusts(ctx context.Context, fingerprints []string) (bool, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return false, fmt.Errorf("signature: %w", err)
	}
	trusted := 0
	for _, f := range ring.fingerprints() {
		if slices.Contains(fingerprints, f) {
			trusted++
		}
	}
	return trusted >= v.keys.require, nil
}

// Verify searches valid signatures of d, or else of platform: the node's image of an index, or empty. All required
// ones are of the same digest. repository is the name in the pod manifest, for any host that serves it. It returns
// ErrUnsigned, ErrWrong, ErrNoKeys, ErrFewKeys, or an error of the source.
func (v *Verifier) Verify(
	ctx context.Context, from Fetcher, repository string, d, platform digest.Digest,
) (Verdict, error) {
	verdict, err := v.verify(ctx, from, repository, d, platform)
	if err != nil {
		return Verdict{}, fmt.Errorf("signature: %s@%s: %w", repository, d, err)
	}
	v.log.InfoContext(ctx, "signature verified",
		"repository", repository, "digest", d, "signed", verdict.Signed, "format", verdict.Format,
		"key", strings.Join(verdict.Keys, ","))
	return verdict, nil
}

func (v *Verifier) verify(
	ctx context.Context, from Fetcher, repository string, d, platform digest.Digest,
) (Verdict, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return Verdict{}, err
	}
	name, err := release.NormalizeRepository(repository)
	if err != nil {
		return Verdict{}, err
	}
	s := &search{
		from: from, owner: owner{name, v.rewrites}, ring: ring, require: v.keys.require, seen: map[digest.Digest]bool{},
	}
	most := 0 // keys that signed one of the digests
	for _, signed := range []digest.Digest{d, platform} {
		if signed == "" && signed != d || s.seen[signed] {
			continue
		}
		s.seen[signed] = true
		if err := signed.Validate(); err != nil || signed.Algorithm() != digest.SHA256 {
			return Verdict{}, fmt.Errorf("digest %q is not SHA-256", signed)
		}
		s.found = Verdict{Signed: signed}
		if s.over(ctx, signed) {
			return s.found, nil
		}
		most = max(most, len(s.found.Keys))
	}
	return Verdict{}, s.failure(ctx, most)
}

// search is one search for valid signatures. Its methods report whether as many keys as required have signed. An error
// of the source takes precedence over an invalid signature, and that over a missing one.
type search struct {
	from  Fetcher
	owner owner
	ring  ring

	require   int
	found     Verdict
	seen      map[digest.Digest]bool // digests and bundles that were tried
	sourceErr error                  // the first one
	wrong     []string               // invalid signatures
}

// over searches signatures of a digest in all formats and places.
func (s *search) over(ctx context.Context, d digest.Digest) bool {
	for _, try := range []func(context.Context, digest.Digest) bool{s.simpleSigning, s.referrers, s.fallbackTag} {
		if ctx.Err() != nil {
			return false
		}
		if try(ctx, d) {
			return true
		}
	}
	return false
}

// accept records a valid signature. Several of one key count as one.
func (s *search) accept(by key, format string) bool {
	s.found.Format = cmp.Or(s.found.Format, format)
	if !slices.Contains(s.found.Keys, by.fingerprint) {
		s.found.Keys = append(s.found.Keys, by.fingerprint)
	}
	return len(s.found.Keys) >= s.require
}

// absent reports whether err is an error, and records all errors but release.ErrNotFound.
func (s *search) absent(what string, err error) bool {
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		s.torn(what, err)
	}
	return err != nil
}

// torn records the error of a part of a signature. A missing part does not mean that the signature or the image does
// not exist.
func (s *search) torn(what string, err error) {
	if errors.Is(err, release.ErrNotFound) {
		err = errors.New("is missing")
	}
	s.sourceErr = cmp.Or(s.sourceErr, outside.Error(fmt.Errorf("%s: %w", what, err)))
}

func (s *search) refuse(what string, err error) {
	s.wrong = append(s.wrong, outside.Text(fmt.Sprintf("%s: %v", what, err)))
}

// failure returns the error of a search without enough valid signatures.
func (s *search) failure(ctx context.Context, valid int) error {
	reasons := strings.Join(s.wrong[:min(len(s.wrong), maxReasons)], "; ")
	if more := len(s.wrong) - maxReasons; more > 0 {
		reasons = fmt.Sprintf("%s; and %d more", reasons, more)
	}
	switch {
	case s.sourceErr != nil && reasons != "":
		return fmt.Errorf("%w (%s)", s.sourceErr, reasons)
	case s.sourceErr != nil:
		return s.sourceErr
	case ctx.Err() != nil:
		return ctx.Err()
	case reasons != "" && valid > 0:
		return fmt.Errorf("%w by enough keys: %d, want %d; %s", ErrWrong, valid, s.require, reasons)
	case reasons != "":
		return fmt.Errorf("%w: %s", ErrWrong, reasons)
	case valid > 0:
		return fmt.Errorf("%w by enough keys: %d, want %d", ErrUnsigned, valid, s.require)
	}
	return ErrUnsigned
}

// Releases verifies releases with signatures from the releases' source. It implements stage.Verifier and
// channel.Verifier.
type Releases struct {
	*Verifier

	From Fetcher
}

// Verify implements stage.Verifier.
func (r Releases) Verify(ctx context.Context, rel release.Release) (string, error) {
	keys, err := r.Signers(ctx, rel)
	if err != nil {
		return "", err
	}
	return keys[0], nil
}

// Signers implements channel.Verifier.
func (r Releases) Signers(ctx context.Context, rel release.Release) ([]string, error) {
	verdict, err := r.Verifier.Verify(ctx, r.From, rel.Repository, rel.Digest, rel.Manifest)
	return verdict.Keys, err
}

// WithKeys returns a verifier for these public keys, each in PEM, instead of directories. require is how many of them
// must have signed; 0: one.
func WithKeys(require int, pems ...[]byte) (*Verifier, error) {
	var given ring
	for _, data := range pems {
		k, err := parseKey(data)
		if err != nil {
			return nil, fmt.Errorf("signature: public key: %w", err)
		}
		given = append(given, k)
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("signature: %w", ErrNoKeys)
	}
	if n := len(given.fingerprints()); n < require {
		return nil, fmt.Errorf("signature: %w: %d, want %d", ErrFewKeys, n, require)
	}
	log := slog.New(slog.DiscardHandler)
	return &Verifier{keys: keys{given: given, require: max(require, 1), log: log}, log: log}, nil
}

// VerifyBytes verifies a base64 signature of exactly these bytes. It returns the fingerprint of the key, or ErrWrong.
// The bytes must identify their kind of content, and the caller must check it: otherwise one kind could be mistaken for
// another signed by the same key.
func (v *Verifier) VerifyBytes(ctx context.Context, message []byte, encoded string) (string, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return "", fmt.Errorf("signature: %w", err)
	}
	sig, err := decode(encoded, maxEncoded)
	if err != nil {
		return "", fmt.Errorf("signature: %w: %w", ErrWrong, err)
	}
	by, err := ring.verify(message, sig)
	if err != nil {
		return "", fmt.Errorf("signature: %w: %w", ErrWrong, err)
	}
	return by.fingerprint, nil
}
