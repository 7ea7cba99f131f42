// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asReferrer makes of the image of signatures that cosign has laid under a tag the artifact that it makes with
// COSIGN_EXPERIMENTAL=1 and --registry-referrers-mode=oci-1-1, as cosign's WriteSignaturesExperimentalOCI does: the
// same layers, and a subject. It returns its entry in a list.
func (s *shelf) asReferrer(t testing.TB, edit func(manifest map[string]any)) ocispec.Descriptor {
	t.Helper()
	tag := tagOf(s.Index) + ".sig"
	var manifest map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.Manifests[s.Tags[tag]].Body), &manifest))
	delete(s.Tags, tag)
	manifest["config"].(map[string]any)["mediaType"] = simpleArtifact
	manifest["artifactType"] = simpleArtifact
	manifest["subject"] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: s.Index, Size: 1}
	if edit != nil {
		edit(manifest)
	}
	body, err := json.Marshal(manifest)
	require.NoError(t, err)
	d := digest.FromBytes(body)
	s.Manifests[d] = onShelf{ocispec.MediaTypeImageManifest, string(body)}
	return ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageManifest, Digest: d, Size: int64(len(body)), ArtifactType: describe(body).ArtifactType,
	}
}

// list answers the referrers API, or lies under the tag that replaces it.
func (s *shelf) list(t testing.TB, byTag bool, all ...ocispec.Descriptor) {
	t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: all}
	index.SchemaVersion = 2
	body, err := json.Marshal(index)
	require.NoError(t, err)
	if !byTag {
		s.References[s.Index] = string(body)
		return
	}
	d := digest.FromBytes(body)
	s.Manifests[d] = onShelf{ocispec.MediaTypeImageIndex, string(body)}
	s.Tags[tagOf(s.Index)] = d
}

// TestSimpleSigningByReferrers: cosign 2 can attach its signatures without a tag.
func TestSimpleSigningByReferrers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"p256", "p384", "ed25519", "rsa3072", "rsa4096"} {
		for _, byTag := range []bool{false, true} {
			s := fixture(t, "cosign2-"+kind)
			s.list(t, byTag, s.asReferrer(t, nil))
			got, err := s.verify(t, with(t, kind))
			require.NoError(t, err, kind)
			assert.Equal(t, Verdict{Key: ringOf(t, kind)[0].fingerprint, Format: SimpleSigning, Signed: s.Index}, got)
			_, err = s.verify(t, with(t, "other"))
			require.ErrorIs(t, err, ErrWrong, "not ErrUnsigned: there is a signature")
			require.ErrorContains(t, err, "layer 0: by another key")
		}
	}
}

// layersOf edits the layers of a manifest.
func layersOf(edit func([]any) []any) func(map[string]any) {
	return func(manifest map[string]any) { manifest["layers"] = edit(manifest["layers"].([]any)) }
}

func TestReferrersThatAreSignaturesOrNot(t *testing.T) {
	t.Parallel()
	annotate := func(encoded string) func(map[string]any) {
		return layersOf(func(layers []any) []any {
			layers[0].(map[string]any)["annotations"] = map[string]any{simpleAnnotation: encoded}
			return layers
		})
	}
	other := newSigner(t)
	cases := map[string]struct {
		edit  func(map[string]any)
		entry func(*ocispec.Descriptor)
		want  error
		cause string
	}{
		"the type of its config only": {edit: func(m map[string]any) { delete(m, "artifactType") }},
		"an empty config, and a type": {edit: func(m map[string]any) {
			m["config"] = ocispec.DescriptorEmptyJSON
		}},
		"another type in the list, as of a bundle": {entry: func(desc *ocispec.Descriptor) { desc.ArtifactType = bundleMediaType }},
		"a good layer behind a bad one": {edit: layersOf(func(layers []any) []any {
			bad := maps.Clone(layers[0].(map[string]any))
			bad["annotations"] = map[string]any{simpleAnnotation: other.sign(t, "x")}
			return append([]any{bad}, layers...)
		})},
		"another key":  {edit: annotate(other.sign(t, "x")), want: ErrWrong, cause: "by another key"},
		"no signature": {edit: layersOf(func(layers []any) []any { delete(layers[0].(map[string]any), "annotations"); return layers }), want: ErrWrong, cause: "no annotation"},
		"no layer":     {edit: layersOf(func([]any) []any { return []any{} }), want: ErrUnsigned},
		"65 layers": {edit: layersOf(func(layers []any) []any {
			return slices.Repeat(layers, 65)
		}), want: ErrWrong, cause: "65 layers, at most 64"},
		"an attestation": {edit: func(m map[string]any) {
			m["artifactType"] = "application/vnd.dev.cosign.artifact.att.v1+json"
		}, want: ErrUnsigned},
		"an SBOM that the list calls a signature": {edit: func(m map[string]any) {
			m["artifactType"] = "application/vnd.dev.cosign.artifact.sbom.v1+json"
		}, entry: func(desc *ocispec.Descriptor) { desc.ArtifactType = simpleArtifact }, want: ErrUnsigned},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fixture(t, "cosign2-p256")
			desc := s.asReferrer(t, c.edit)
			if c.entry != nil {
				c.entry(&desc)
			}
			s.list(t, false, desc)
			got, err := s.verify(t, with(t, "p256"))
			if c.want == nil {
				require.NoError(t, err)
				assert.Equal(t, SimpleSigning, got.Format)
				return
			}
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.cause)
		})
	}
}

// What a signature says counts as it does under a tag: it must be for this repository.
func TestReferrerOfAnotherRepositoryIsNoSignature(t *testing.T) {
	t.Parallel()
	s := fixture(t, "identity")
	s.list(t, false, s.asReferrer(t, nil))
	_, err := s.verify(t, with(t, "p256"))
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, "identity")
}

// A signature whose parts cannot be read is unknown, and not missing.
func TestReferrerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"blob", "referrers", "manifest sha256:"} {
		s := fixture(t, "cosign2-p256")
		s.list(t, false, s.asReferrer(t, nil))
		s.away = func(what string) error {
			if strings.HasPrefix(what, prefix) {
				return errAway
			}
			return nil
		}
		_, err := s.verify(t, with(t, "p256"))
		require.ErrorIs(t, err, errAway, prefix)
		require.NotErrorIs(t, err, ErrUnsigned, prefix)
		require.NotErrorIs(t, err, ErrWrong, prefix)
	}
}
