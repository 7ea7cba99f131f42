// SPDX-License-Identifier: Apache-2.0

package signature

import (
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

// DefaultDir is where SUSE's and openSUSE's packages put their keys
// (suse-build-key, openSUSE-build-key).
const DefaultDir = "/usr/share/pki/containers"

// What may be wrong with the signatures of a digest. Every other error says that
// they could not be asked for, or that there is no key; it is no answer.
var (
	// ErrUnsigned: there is no signature. It may still come: build services sign
	// after they have published the tags.
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

// Fetcher is the source of signatures: the one of the image. An error is
// release.ErrNotFound only where the thing is not there; an error of any other kind
// is no answer.
type Fetcher interface {
	// Manifest gives the manifest or index that a tag or digest names, with its
	// media type; by digest, it was compared with it.
	Manifest(ctx context.Context, repository, tagOrDigest string) (mediaType string, body []byte, err error)
	// Blob gives a blob, which was compared with size and digest.
	Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error)
	// Referrers lists the manifests that refer to a digest. A source that keeps no
	// such list has release.ErrNotFound.
	Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error)
}

// Verdict is what a valid signature says.
type Verdict struct {
	Key    string        // fingerprint, sha256:HEX
	Format string        // SimpleSigning or Bundle
	Signed digest.Digest // the digest asked for, or that of the platform
}

// Options say which keys count.
type Options struct {
	// Dirs are the directories of which every *.pem counts; nil: DefaultDir.
	Dirs []string
	// Rewrites are those that pod manifests are rendered with: the repository that
	// one of them makes may have the signatures of the one that it was made of.
	Rewrites []manifests.Rewrite
	// Log is told of keys and verifications; nil: nowhere.
	Log *slog.Logger
}

// Verifier verifies signatures. It is safe for concurrent use.
type Verifier struct {
	keys     keys
	rewrites []manifests.Rewrite
	log      *slog.Logger
}

// New makes a verifier; no key is read yet.
func New(o Options) *Verifier {
	if o.Dirs == nil {
		o.Dirs = []string{DefaultDir}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Verifier{
		keys: keys{dirs: slices.Clone(o.Dirs), log: o.Log}, rewrites: slices.Clone(o.Rewrites), log: o.Log,
	}
}

// Keys are what a refusal depends on beside the signatures, and holds as long as
// it is the same: the fingerprints of the keys that count now, sorted, and the
// rewrites.
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

// Verify looks for a valid signature over d, and where that has none over
// platform: the digest of the image that an index has for the node; empty: only d
// counts. repository is the name that the pod manifest has, whatever host serves
// it. The error is ErrUnsigned, ErrWrong, ErrNoKeys, or of the source.
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

// search is one look for a valid signature. What stood in the way is kept: no
// answer outweighs a wrong signature, and that outweighs none.
type search struct {
	from  Fetcher
	owner owner
	ring  ring

	seen   map[digest.Digest]bool // digests and bundles that were looked at
	noWord []error                // of the source
	wrong  []string               // each a signature that does not count
}

// over asks for signatures of a digest, in each format and by each way.
func (s *search) over(ctx context.Context, d digest.Digest) (Verdict, bool) {
	for _, ask := range []func(context.Context, digest.Digest) (Verdict, bool){
		s.simpleSigning, s.referrers, s.fallbackTag,
	} {
		if ctx.Err() != nil {
			return Verdict{}, false
		}
		if verdict, ok := ask(ctx, d); ok {
			return verdict, true
		}
	}
	return Verdict{}, false
}

// absent tells whether a thing is not there; another error is kept.
func (s *search) absent(what string, err error) bool {
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		s.noWord = append(s.noWord, outside.Error(fmt.Errorf("%s: %w", what, err)))
	}
	return err != nil
}

// torn keeps the error for a part of a signature. One that is not there is not
// the absence of a signature, nor of the image.
func (s *search) torn(what string, err error) {
	if errors.Is(err, release.ErrNotFound) {
		err = errors.New("is missing")
	}
	s.noWord = append(s.noWord, outside.Error(fmt.Errorf("%s: %w", what, err)))
}

func (s *search) refuse(what string, err error) {
	s.wrong = append(s.wrong, outside.Text(fmt.Sprintf("%s: %v", what, err)))
}

// failure is the error of a search that found no valid signature.
func (s *search) failure(ctx context.Context) error {
	told := strings.Join(s.wrong[:min(len(s.wrong), maxReasons)], "; ")
	if more := len(s.wrong) - maxReasons; more > 0 {
		told = fmt.Sprintf("%s; and %d more", told, more)
	}
	switch {
	case len(s.noWord) > 0 && told != "":
		return fmt.Errorf("%w (%s)", s.noWord[0], told)
	case len(s.noWord) > 0:
		return s.noWord[0]
	case ctx.Err() != nil:
		return ctx.Err()
	case told != "":
		return fmt.Errorf("%w: %s", ErrWrong, told)
	}
	return ErrUnsigned
}
