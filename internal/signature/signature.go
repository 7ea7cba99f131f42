// SPDX-License-Identifier: Apache-2.0

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
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Errors of Verify. With any other error, the signatures are unknown.
var (
	// ErrUnsigned: there is no signature yet: build services sign after they have
	// published the tags.
	ErrUnsigned = release.ErrUnsigned
	// ErrWrong: there are signatures, and none of them is valid for this digest,
	// this repository and these keys.
	ErrWrong = release.ErrForged
	// ErrNoKeys: there is no usable key.
	ErrNoKeys = errors.New("no usable public key")
)

// The formats of signatures.
const (
	SimpleSigning = "simple signing"
	Bundle        = "bundle"
)

// Fetcher is the source of images and their signatures. It returns release.ErrNotFound only
// for what certainly does not exist.
type Fetcher interface {
	// Manifest returns the manifest or index of a tag or digest, with its media type; a
	// digest is verified.
	Manifest(ctx context.Context, repository, tagOrDigest string) (mediaType string, body []byte, err error)
	// Blob returns a blob; size and digest are verified.
	Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error)
	// Referrers lists the manifests that refer to a digest; release.ErrNotFound if the
	// source has no such list.
	Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error)
}

// Verdict describes a valid signature.
type Verdict struct {
	Key    string        // fingerprint, sha256:HEX
	Format string        // SimpleSigning or Bundle
	Signed digest.Digest // the digest asked for, or that of the platform
}

// Options configure a Verifier.
type Options struct {
	// Dirs are the directories with keys (*.pem).
	Dirs []string
	// Rewrites are those that render pod manifests: the signatures of a repository count
	// for what a rewrite turns it into.
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
		keys: keys{dirs: slices.Clone(o.Dirs), log: o.Log}, rewrites: slices.Clone(o.Rewrites), log: o.Log,
	}
}

// Keys returns the fingerprints of the current keys, sorted, and the rewrites. A refusal
// stays valid while they are the same.
func (v *Verifier) Keys(ctx context.Context) ([]string, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	var fingerprints []string
	for _, k := range ring {
		fingerprints = append(fingerprints, k.fingerprint)
	}
	slices.Sort(fingerprints)
	fingerprints = slices.Compact(fingerprints)
	for _, r := range v.rewrites {
		fingerprints = append(fingerprints, r.From+"="+r.To)
	}
	return fingerprints, nil
}

// Verify searches a valid signature of d, or else of platform: the node's image of an
// index, or empty. repository is the name in the pod manifest, whatever host serves it.
// The error is ErrUnsigned, ErrWrong, ErrNoKeys, or of the source.
func (v *Verifier) Verify(
	ctx context.Context, from Fetcher, repository string, d, platform digest.Digest,
) (Verdict, error) {
	verdict, err := v.verify(ctx, from, repository, d, platform)
	if err != nil {
		return Verdict{}, fmt.Errorf("signature: %s@%s: %w", repository, d, err)
	}
	v.log.InfoContext(ctx, "signature verified",
		"repository", repository, "digest", d, "signed", verdict.Signed, "format", verdict.Format, "key", verdict.Key)
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
	s := &search{from: from, owner: owner{name, v.rewrites}, ring: ring, seen: map[digest.Digest]bool{}}
	for _, signed := range []digest.Digest{d, platform} {
		if signed == "" && signed != d || s.seen[signed] {
			continue
		}
		s.seen[signed] = true
		if err := signed.Validate(); err != nil || signed.Algorithm() != digest.SHA256 {
			return Verdict{}, fmt.Errorf("digest %q: not of sha256", signed)
		}
		if verdict, ok := s.over(ctx, signed); ok {
			return verdict, nil
		}
	}
	return Verdict{}, s.failure(ctx)
}

// search is one search for a valid signature. An error of the source outweighs a wrong
// signature, and that outweighs none.
type search struct {
	from  Fetcher
	owner owner
	ring  ring

	seen      map[digest.Digest]bool // digests and bundles that were tried
	sourceErr error                  // the first one
	wrong     []string               // invalid signatures
}

// over searches a signature of a digest, in each format and place.
func (s *search) over(ctx context.Context, d digest.Digest) (Verdict, bool) {
	for _, try := range []func(context.Context, digest.Digest) (Verdict, bool){
		s.simpleSigning, s.referrers, s.fallbackTag,
	} {
		if ctx.Err() != nil {
			return Verdict{}, false
		}
		if verdict, ok := try(ctx, d); ok {
			return verdict, true
		}
	}
	return Verdict{}, false
}

// absent reports an error. It records every one but release.ErrNotFound.
func (s *search) absent(what string, err error) bool {
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		s.torn(what, err)
	}
	return err != nil
}

// torn records the error of a part of a signature. A missing part does not mean that the
// signature or the image does not exist.
func (s *search) torn(what string, err error) {
	if errors.Is(err, release.ErrNotFound) {
		err = errors.New("is missing")
	}
	s.sourceErr = cmp.Or(s.sourceErr, outside.Error(fmt.Errorf("%s: %w", what, err)))
}

func (s *search) refuse(what string, err error) {
	s.wrong = append(s.wrong, outside.Text(fmt.Sprintf("%s: %v", what, err)))
}

// failure returns the error of a search without a valid signature.
func (s *search) failure(ctx context.Context) error {
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
	case reasons != "":
		return fmt.Errorf("%w: %s", ErrWrong, reasons)
	}
	return ErrUnsigned
}
