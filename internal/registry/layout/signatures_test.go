// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// artifact writes a manifest with one blob that refers to subject. It returns the digest and the blob.
func artifact(t *testing.T, dir string, subject digest.Digest, content string) (digest.Digest, ocispec.Descriptor) {
	t.Helper()
	blob := ocispec.Descriptor{MediaType: "a/b", Digest: digest.FromString(content), Size: int64(len(content))}
	require.NoError(t, os.WriteFile(blobPath(dir, blob.Digest), []byte(content), 0o600))
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": ocispec.DescriptorEmptyJSON, "layers": []any{blob},
	}
	if subject != "" {
		manifest["subject"] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: subject, Size: 1}
	}
	body, err := json.Marshal(manifest)
	require.NoError(t, err)
	return raw(t, dir, ocispec.MediaTypeImageManifest, string(body)), blob
}

func TestManifestAndBlob(t *testing.T) {
	t.Parallel()
	dir, image := one(t)
	signature, blob := artifact(t, dir, "", "payload")
	sigTag := strings.Replace(image.String(), ":", "-", 1) + ".sig"
	edit(t, dir, func(index *ocispec.Index) {
		index.Manifests[len(index.Manifests)-1].Annotations = map[string]string{ocispec.AnnotationRefName: velum + ":" + sigTag}
	})
	for _, path := range []string{dir, packed(t, dir)} {
		l := opened(t, path)
		for _, name := range []string{sigTag, signature.String()} {
			kind, body, err := l.Manifest(t.Context(), velum, name)
			require.NoError(t, err)
			assert.Equal(t, ocispec.MediaTypeImageManifest, kind)
			assert.Equal(t, signature, digest.FromBytes(body))
		}
		body, err := l.Blob(t.Context(), velum, blob)
		require.NoError(t, err)
		assert.Equal(t, "payload", string(body))

		_, _, err = l.Manifest(t.Context(), velum, "sha256-00.sig")
		require.ErrorIs(t, err, release.ErrNotFound)
		_, _, err = l.Manifest(t.Context(), "registry.suse.com/other", sigTag)
		require.ErrorIs(t, err, release.ErrNotFound)
		for _, gone := range []string{digest.FromString("gone").String(), "sha256:00"} {
			_, _, err = l.Manifest(t.Context(), velum, gone)
			require.Error(t, err)
			require.NotErrorIs(t, err, release.ErrNotFound, "what an index names must be there")
		}
		for cause, desc := range map[string]ocispec.Descriptor{
			"blob is missing":    {Digest: digest.FromString("gone"), Size: 1},
			"7 bytes, not 8":     {Digest: blob.Digest, Size: 8},
			"too large":          {Digest: blob.Digest, Size: 1<<20 + 1},
			`digest "../../etc"`: {Digest: "../../etc", Size: 1},
		} {
			_, err = l.Blob(t.Context(), velum, desc)
			require.ErrorContains(t, err, cause)
			require.NotErrorIs(t, err, release.ErrNotFound)
		}
		_, err = l.Blob(t.Context(), "registry.suse.com/other", blob)
		require.Error(t, err, "a repository has its own blobs only")
	}
	require.NoError(t, os.WriteFile(blobPath(dir, blob.Digest), []byte("pay1oad"), 0o600))
	_, err := opened(t, dir).Blob(t.Context(), velum, blob)
	require.ErrorContains(t, err, "content has digest")
	require.NoError(t, os.WriteFile(blobPath(dir, signature), []byte("{}"), 0o600))
	_, _, err = opened(t, dir).Manifest(t.Context(), velum, signature.String())
	require.Error(t, err)
}

// The children of an index are in no index.json, and OCI lets a manifest omit its media type.
func TestManifestOfAChild(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	for body, kind := range map[string]string{
		`{"schemaVersion":2}`:                                ocispec.MediaTypeImageManifest,
		`{"schemaVersion":2,"manifests":[]}`:                 ocispec.MediaTypeImageIndex,
		`{"schemaVersion":2,"mediaType":"text/plain"}`:       "text/plain",
		`{"schemaVersion":2,"mediaType":1,"manifests":[]}`:   ocispec.MediaTypeImageIndex,
		`no JSON, which the reader of the manifest will say`: ocispec.MediaTypeImageManifest,
	} {
		d := digest.FromString(body)
		require.NoError(t, os.WriteFile(blobPath(dir, d), []byte(body), 0o600))
		got, data, err := opened(t, dir).Manifest(t.Context(), velum, d.String())
		require.NoError(t, err, body)
		assert.Equal(t, kind, got, body)
		assert.Equal(t, body, string(data))
	}
	big := strings.Repeat(" ", 4<<20+1)
	require.NoError(t, os.WriteFile(blobPath(dir, digest.FromString(big)), []byte(big), 0o600))
	_, _, err := opened(t, dir).Manifest(t.Context(), velum, digest.FromString(big).String())
	require.ErrorContains(t, err, "too large")
}

func TestReferrers(t *testing.T) {
	t.Parallel()
	dir, image := one(t)
	first, _ := artifact(t, dir, image, "one")
	second, _ := artifact(t, dir, image, "two")
	untyped, _ := artifact(t, dir, image, "no artifact type")
	elsewhere, _ := artifact(t, dir, digest.FromString("another image"), "three")
	edit(t, dir, func(index *ocispec.Index) {
		for i := range index.Manifests {
			if d := index.Manifests[i].Digest; d != image && d != untyped {
				index.Manifests[i].ArtifactType = "a/b"
			}
		}
	})
	l := opened(t, dir)
	list, err := l.Referrers(t.Context(), velum, image)
	require.NoError(t, err)
	var got []string
	for _, desc := range list {
		got = append(got, desc.Digest.String())
	}
	assert.ElementsMatch(t, []string{first.String(), second.String()}, got)
	assert.IsIncreasing(t, got)
	assert.NotContains(t, got, elsewhere.String())
	_, err = l.Referrers(t.Context(), velum, digest.FromString("unsigned"))
	require.ErrorIs(t, err, release.ErrNotFound)
	_, err = l.Referrers(t.Context(), "registry.suse.com/other", image)
	require.ErrorIs(t, err, release.ErrNotFound)

	require.NoError(t, os.WriteFile(blobPath(dir, first), []byte("torn"), 0o600))
	_, err = opened(t, dir).Referrers(t.Context(), velum, image)
	require.Error(t, err)
	require.NotErrorIs(t, err, release.ErrNotFound)
}

func TestSignaturesEndWithTheContext(t *testing.T) {
	t.Parallel()
	dir, image := one(t)
	l := opened(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := l.Manifest(ctx, velum, image.String())
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Blob(ctx, velum, ocispec.Descriptor{Digest: image, Size: 1})
	require.ErrorIs(t, err, context.Canceled)
}

// The contents of a manifest on removable media are counted before decoding, as for a registry's.
func TestArtifactsAreCounted(t *testing.T) {
	t.Parallel()
	dir, image := one(t)
	nothing := strings.Repeat("{},", ocimanifest.MaxEntries) + "{}"
	large := raw(t, dir, ocispec.MediaTypeImageManifest, `{"schemaVersion":2,"layers":[`+nothing+`]}`)
	edit(t, dir, func(index *ocispec.Index) { index.Manifests[len(index.Manifests)-1].ArtifactType = "a/b" })
	l := opened(t, dir)
	_, _, err := l.Manifest(t.Context(), velum, large.String())
	require.ErrorIs(t, err, ocimanifest.ErrTooMany)
	_, err = l.Referrers(t.Context(), velum, image)
	require.ErrorIs(t, err, ocimanifest.ErrTooMany)
}
