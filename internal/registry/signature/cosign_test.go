// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Signatures of cosign 2, cosign 3 and openssl, with each kind of key, are valid for that key among others, and for no
// other.
func TestSignaturesByOthers(t *testing.T) {
	t.Parallel()
	kinds := []string{"p256", "p384", "ed25519", "rsa3072", "rsa4096"}
	type fixtureOf struct{ name, key, format string }
	all := []fixtureOf{
		{"suse-rsa4096", "rsa4096", SimpleSigning},
		{"two", "p256", SimpleSigning},
		{"two", "other", SimpleSigning},
		{"fallback", "p256", Bundle},
	}
	for _, kind := range kinds {
		all = append(all, fixtureOf{"cosign2-" + kind, kind, SimpleSigning}, fixtureOf{"cosign2-bundle-" + kind, kind, Bundle},
			fixtureOf{"cosign3-" + kind, kind, Bundle}, fixtureOf{"cosign3-simple-" + kind, kind, SimpleSigning},
			fixtureOf{"blob-" + kind, kind, Bundle})
	}
	for _, f := range all {
		t.Run(f.name+" with "+f.key, func(t *testing.T) {
			t.Parallel()
			s := fixture(t, f.name)
			got, err := s.verify(t, with(t, f.key))
			require.NoError(t, err)
			assert.Equal(t, Verdict{Keys: ringOf(t, f.key).fingerprints(), Format: f.format, Signed: s.Index}, got)

			got, err = s.verify(t, with(t, append(kinds, "other")...))
			require.NoError(t, err)
			assert.Equal(t, f.format, got.Format)

			var others []string
			for _, kind := range kinds {
				if kind != f.key {
					others = append(others, kind)
				}
			}
			_, err = s.verify(t, with(t, others...))
			if f.name == "two" && f.key == "other" {
				require.NoError(t, err, "p256 has signed it as well")
				return
			}
			require.ErrorIs(t, err, ErrWrong)
			require.ErrorContains(t, err, "made with another key")
		})
	}
}

// An image counts as signed if only its platform's image is signed, and vice versa; but the name of its index alone
// does not count.
func TestIndexOrPlatform(t *testing.T) {
	t.Parallel()
	p := fixture(t, "platform")
	got, err := p.verify(t, with(t, "p256"))
	require.NoError(t, err)
	assert.Equal(t, p.Platform, got.Signed)
	_, err = with(t, "p256").Verify(t.Context(), p, p.Repository, p.Index, "")
	require.ErrorIs(t, err, ErrUnsigned)
	_, err = with(t, "p256").Verify(t.Context(), p, p.Repository, p.Index, p.Index)
	require.ErrorIs(t, err, ErrUnsigned)
	_, err = with(t, "other").Verify(t.Context(), p, p.Repository, p.Index, p.Platform)
	require.ErrorIs(t, err, ErrWrong)

	i := fixture(t, "cosign2-p256")
	got, err = i.verify(t, with(t, "p256"))
	require.NoError(t, err)
	assert.Equal(t, i.Index, got.Signed)
	assert.Len(t, i.asked, 2, "manifest and payload: what is signed once is not asked for again: %v", i.asked)
	got, err = with(t, "p256").Verify(t.Context(), i, i.Repository, i.Index, "")
	require.NoError(t, err)
	assert.Equal(t, i.Index, got.Signed)
	_, err = with(t, "p256").Verify(t.Context(), i, i.Repository, i.Platform, "")
	require.ErrorIs(t, err, ErrUnsigned)
	// An invalid signature of an index does not override a valid one of the platform.
	payload, encoded := stolen(t, i)
	p.simple(t, p.Index, p.layer(payload+" ", encoded))
	got, err = p.verify(t, with(t, "p256"))
	require.NoError(t, err)
	assert.Equal(t, p.Platform, got.Signed)
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	s := fixture(t, "identity")
	_, err := s.verify(t, with(t, "p256"))
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, `identity "registry.suse.com/another": not registry.suse.com/identity`)

	d := digest.FromString("image")
	for identity, repository := range map[string]string{
		"registry.suse.com/caasp/v4/velum":                  "registry.suse.com/caasp/v4/velum",
		"registry.suse.com/caasp/v4/velum:4.0.0":            "registry.suse.com/caasp/v4/velum",
		"registry.suse.com/velum@" + d.String():             "registry.suse.com/velum",
		"docker.io/library/nginx":                           "docker.io/library/nginx",
		"index.docker.io/library/nginx":                     "docker.io/library/nginx",
		"docker.io/nginx":                                   "docker.io/library/nginx",
		"index.docker.io/sles12/velum":                      "docker.io/sles12/velum",
		"sles12/velum":                                      "docker.io/sles12/velum",
		"registry.local:5000/registry.suse.com/caasp/pause": "registry.local:5000/registry.suse.com/caasp/pause",
	} {
		assert.NoError(t, owner{repository: repository}.checkIdentity(identity, d), identity)
	}
	other := digest.FromString("other image")
	for _, identity := range []string{
		"", "velum", "registry.suse.com", "registry.suse.com/", "registry.suse.com/caasp/v4/velum2", "registry.suse.com/caasp/v4",
		"registry.suse.de/caasp/v4/velum", "registry.suse.com:443/caasp/v4/velum", "registry.suse.com/caasp/v4/Velum",
		"mirror.local/registry.suse.com/caasp/v4/velum", "caasp/v4/velum", "https://registry.suse.com/caasp/v4/velum",
		"registry.suse.com/caasp/v4/velum\n", " registry.suse.com/caasp/v4/velum",
		"registry.suse.com/caasp/v4/velum@" + other.String(),
	} {
		assert.Error(t, owner{repository: "registry.suse.com/caasp/v4/velum"}.checkIdentity(identity, d), identity)
	}
}

// A short name in a pod manifest is the same as its full repository.
func TestRepositoryIsNormalised(t *testing.T) {
	t.Parallel()
	s := fixture(t, "cosign2-p256")
	_, err := with(t, "p256").Verify(t.Context(), s, "registry.suse.com/cosign2-p256:1", s.Index, "")
	require.ErrorContains(t, err, "has a tag")
	_, err = with(t, "p256").Verify(t.Context(), s, "Nonsense", s.Index, "")
	require.Error(t, err)
	assert.Empty(t, s.asked)
}

func TestAttestationIsNotASignature(t *testing.T) {
	t.Parallel()
	s := fixture(t, "attestation")
	_, err := s.verify(t, with(t, "p256"))
	require.ErrorIs(t, err, ErrUnsigned)
	assert.Equal(t, 1, strings.Count(strings.Join(s.asked, "\n"), "referrers "+s.Index.String()))
	assert.NotContains(t, strings.Join(s.asked, "\n"), "blob", "the annotation says that it is none")

	// The list of a fallback tag has no annotations; the manifest has.
	tagged := fixture(t, "attestation")
	tagged.References = nil
	var list ocispec.Index
	require.NoError(t, json.Unmarshal([]byte(s.References[s.Index]), &list))
	for i := range list.Manifests {
		list.Manifests[i].Annotations, list.Manifests[i].ArtifactType = nil, bundleMediaType
	}
	list.MediaType, list.SchemaVersion = ocispec.MediaTypeImageIndex, 2
	body, err := json.Marshal(list)
	require.NoError(t, err)
	d := digest.FromBytes(body)
	tagged.Manifests[d] = onShelf{ocispec.MediaTypeImageIndex, string(body)}
	tagged.Tags[tagOf(s.Index)] = d
	_, err = tagged.verify(t, with(t, "other"))
	require.ErrorIs(t, err, ErrUnsigned, "of whomever")
	asked := strings.Join(tagged.asked, "\n")
	assert.Contains(t, asked, "manifest "+list.Manifests[0].Digest.String())
	assert.NotContains(t, asked, "blob")

	// Without an annotation, the signed statement shows it.
	bare := unsigned()
	bare.Index = s.Index
	bare.refer(t, bare.Index, bundleOf(t, s))
	_, err = bare.verify(t, with(t, "p256"))
	require.ErrorIs(t, err, ErrUnsigned)
	assert.Contains(t, strings.Join(bare.asked, "\n"), "blob")
	_, err = bare.verify(t, with(t, "other"))
	require.ErrorIs(t, err, ErrWrong)
}
