// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// pull reads an image as containerd does: the index by its digest, the manifest
// in it, each blob of that.
func pull(t *testing.T, l *layout.Layout, repository string, d digest.Digest) {
	t.Helper()
	desc, err := l.Locate(t.Context(), repository, d)
	require.NoError(t, err)
	assert.Equal(t, d, desc.Digest)
	assert.Empty(t, desc.Annotations)
	fetched := func(desc ocispec.Descriptor) []byte {
		body, err := l.Fetch(t.Context(), repository, desc)
		require.NoError(t, err)
		defer body.Close()
		data, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, desc.Digest, digest.FromBytes(data))
		return data
	}
	var idx ocispec.Index
	require.NoError(t, json.Unmarshal(fetched(desc), &idx))
	for _, child := range idx.Manifests {
		var m ocispec.Manifest
		require.NoError(t, json.Unmarshal(fetched(child), &m))
		fetched(m.Config)
		for _, blob := range m.Layers {
			fetched(blob)
		}
	}
}

func TestPull(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	d := add(t, filepath.Join(top, velum), ocispec.AnnotationRefName, "4.0.0-rev1", index(t, "linux/arm64", "linux/amd64"))
	long := packed(t, top, func(w *tar.Writer) { member(t, w, "PaxHeader", make([]byte, 1000)) })
	for _, path := range []string{top, packed(t, top), long} {
		l := opened(t, path)
		pull(t, l, velum, d)
	}
}

func TestLocateMisses(t *testing.T) {
	t.Parallel()
	dir, d := one(t)
	l := opened(t, dir)
	for repository, missing := range map[string]digest.Digest{velum: digest.FromString("nobody"), "a.io/b": d, "A B": d} {
		_, err := l.Locate(t.Context(), repository, missing)
		require.ErrorIs(t, err, release.ErrNotFound, repository)
	}
}

// A damaged layer ends the pull with an error other than "not found".
func TestDamagedLayer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		said  string
	}{
		"missing": {func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "blob is missing"},
		"torn":    {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10)) }, "blob has 10 bytes"},
		"changed": {flip, "content has digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, d := one(t)
			layer := manifestOf(t, dir, d).Layers[0]
			c.spoil(t, blobPath(dir, layer.Digest))
			for _, path := range []string{dir, packed(t, dir)} {
				err := fetch(t.Context(), t, opened(t, path), layer)
				noAnswer(t, err, c.said)
				require.NotErrorIs(t, err, release.ErrNotFound)
			}
		})
	}
}

func fetch(ctx context.Context, t *testing.T, l *layout.Layout, desc ocispec.Descriptor) error {
	t.Helper()
	body, err := l.Fetch(ctx, velum, desc)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

func TestFetchRefusesPaths(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	l := opened(t, dir)
	for _, d := range []digest.Digest{"", "sha256:../../index.json", "../../x:y", "md5:00"} {
		noAnswer(t, fetch(t.Context(), t, l, ocispec.Descriptor{Digest: d, Size: 1}), "digest")
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir, d := one(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := fetch(ctx, t, opened(t, dir), manifestOf(t, dir, d).Config)
	require.ErrorIs(t, err, context.Canceled)
}
