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

// referrer returns the signature image of a fixture in testdata/referrers, edited, as an entry of a list.
func (s *shelf) referrer(t testing.TB, edit func(manifest map[string]any)) ocispec.Descriptor {
	t.Helper()
	list, err := s.Referrers(t.Context(), s.Repository, s.Index)
	require.NoError(t, err)
	require.Len(t, list, 1)
	var manifest map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.Manifests[list[0].Digest].Body), &manifest))
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

// list sets the answer of the referrers API.
func (s *shelf) list(t testing.TB, all ...ocispec.Descriptor) {
	t.Helper()
	body, err := json.Marshal(ocispec.Index{Manifests: all})
	require.NoError(t, err)
	s.References[s.Index] = string(body)
}

// TestSimpleSigningByReferrers: cosign 2 can attach its signatures without a tag.
func TestSimpleSigningByReferrers(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"cosign2-p256": "p256", "cosign2-p384": "p384", "cosign2-ed25519": "ed25519", "cosign2-rsa3072": "rsa3072",
		"cosign2-rsa4096": "rsa4096", "fallback": "p256",
	} {
		s, key := fixture(t, "referrers/"+name), "referrers/"+key
		require.NotContains(t, s.Tags, tagOf(s.Index)+".sig", name)
		got, err := s.verify(t, with(t, key))
		require.NoError(t, err, name)
		assert.Equal(t, Verdict{Keys: ringOf(t, key).fingerprints(), Format: SimpleSigning, Signed: s.Index}, got)
		_, err = s.verify(t, with(t, "referrers/other"))
		require.ErrorIs(t, err, ErrWrong, "not ErrUnsigned: there is a signature")
		require.ErrorContains(t, err, "layer 0: made with another key")
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
		"another key":  {edit: annotate(other.sign(t, "x")), want: ErrWrong, cause: "made with another key"},
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
			s := fixture(t, "referrers/cosign2-p256")
			desc := s.referrer(t, c.edit)
			if c.entry != nil {
				c.entry(&desc)
			}
			s.list(t, desc)
			got, err := s.verify(t, with(t, "referrers/p256"))
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

// The content of such a signature is checked as under a tag: it must be for this repository.
func TestReferrerOfAnotherRepositoryIsNotASignature(t *testing.T) {
	t.Parallel()
	s := fixture(t, "referrers/cosign2-p256")
	s.Repository = "registry.suse.com/another"
	_, err := s.verify(t, with(t, "referrers/p256"))
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, "identity")
}

// A signature with unreadable parts is unknown, not missing.
func TestReferrerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"blob", "referrers", "manifest sha256:"} {
		s := fixture(t, "referrers/cosign2-p256")
		s.away = func(what string) error {
			if strings.HasPrefix(what, prefix) {
				return errAway
			}
			return nil
		}
		_, err := s.verify(t, with(t, "referrers/p256"))
		require.ErrorIs(t, err, errAway, prefix)
		require.NotErrorIs(t, err, ErrUnsigned, prefix)
		require.NotErrorIs(t, err, ErrWrong, prefix)
	}
}
