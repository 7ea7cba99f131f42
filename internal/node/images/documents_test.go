// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// list returns a JSON list of empty objects.
func list(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }

// Every document that containerd's client decodes is counted first: each kind, at its limit and above it, stored in any
// way.
func TestDocumentsAreCountedBeforeTheyAreDecoded(t *testing.T) {
	t.Parallel()
	disk, err := local.NewStore(t.TempDir())
	require.NoError(t, err)
	store := &documents{disk}
	embedded := func(n int) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{' '}, n))
	}
	const most, index, manifest = ocimanifest.MaxEntries, ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest
	for title, c := range map[string]struct {
		mediaType, body, want string
	}{
		"index":                {index, `{"manifests":` + list(most) + `}`, ""},
		"index, one more":      {index, `{"manifests":` + list(most+1) + `}`, "too many entries of a list: over 20000"},
		"manifest":             {manifest, `{"layers":` + list(most) + `}`, ""},
		"manifest, one more":   {manifest, `{"layers":` + list(most+1) + `}`, "too many entries"},
		"config":               {ocispec.MediaTypeImageConfig, `{"history":` + list(most) + `}`, ""},
		"config, one more":     {ocispec.MediaTypeImageConfig, `{"history":` + list(most+1) + `}`, "too many entries"},
		"docker's kinds":       {images.MediaTypeDockerSchema2Config, `{"history":` + list(most+1) + `}`, "too many entries"},
		"embedded":             {index, `{"manifests":[{"data":"` + embedded(maxEmbedded) + `"}]}`, ""},
		"embedded, one more":   {index, `{"manifests":[{"d\u0061ta":"` + embedded(maxEmbedded+1) + `"}]}`, "65537 bytes embedded"},
		"an embedded config":   {manifest, `{"config":{"Data":"` + embedded(maxEmbedded+1) + `"}}`, "65537 bytes embedded"},
		"too long":             {index, `{}` + strings.Repeat(" ", maxDocument-1), "8388609 bytes, at most 8388608"},
		"a layer is its bytes": {ocispec.MediaTypeImageLayerGzip, list(most + 1), ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			desc := ocispec.Descriptor{MediaType: c.mediaType, Digest: digest.FromString(c.body), Size: int64(len(c.body))}
			require.NoError(t, content.WriteBlob(t.Context(), disk, title, strings.NewReader(c.body), desc))
			got, err := content.ReadBlob(t.Context(), store, desc)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.body, string(got))
		})
	}
}

// The daemon's client uses it as well.
func TestEveryClientCountsDocuments(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	s, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	c, err := s.open(t.Context())
	require.NoError(t, err)
	defer c.close()
	assert.IsType(t, &documents{}, c.client.ContentStore())
}

func TestLayersAreBounded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{ocimanifest.MaxLayers, ocimanifest.MaxLayers + 1, 10_000} {
		handler := (&guard{session: sessionOn(t, &fakeRecords{}), onManifest: func([]ocispec.Descriptor) {}}).wrap(images.HandlerFunc(
			func(_ context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
				if n > ocimanifest.MaxLayers {
					assert.NotEqual(t, ocispec.MediaTypeImageConfig, desc.MediaType, "was fetched")
				}
				blobs := []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}}
				for range n {
					blobs = append(blobs, blob("layer", 1))
				}
				return blobs, nil
			}))
		_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Size: 1})
		want := fmt.Sprintf("too many layers: %d, at most 500", n)
		if n <= ocimanifest.MaxLayers {
			want = "config" // the next check
		}
		assert.ErrorContains(t, err, want)
	}
}

// A manifest among the blobs of another one would be fetched and decoded as well, and without being counted if it is
// embedded.
func TestEmbeddedManifestsAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{
		ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
		images.MediaTypeDockerSchema2Manifest, images.MediaTypeDockerSchema2ManifestList,
	} {
		for _, blobs := range [][]ocispec.Descriptor{
			{{MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}, blob("layer", 1), {MediaType: kind}},
			{{MediaType: kind}, {MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}},
		} {
			handler := (&guard{session: sessionOn(t, &fakeRecords{}), onManifest: func([]ocispec.Descriptor) {}}).wrap(images.HandlerFunc(
				func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) { return blobs, nil }))
			_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Size: 1})
			assert.ErrorContains(t, err, "blob of media type \""+kind+"\"")
		}
	}
}
