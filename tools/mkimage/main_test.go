// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The same programs give the same bytes: an image with the program for each architecture.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "built")
	require.NoError(t, os.WriteFile(program, []byte("a program"), 0o600))
	made := func() []byte {
		var out bytes.Buffer
		require.NoError(t, run(&out, "image-catalog", "1.0", "1000000000", []string{"amd64=" + program, "arm64=" + program}))
		return out.Bytes()
	}
	archive := made()
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(program, later, later))
	assert.Equal(t, archive, made())

	unpack(t, archive, dir)
	at, err := layout.FromPath(dir)
	require.NoError(t, err)
	index, err := at.ImageIndex()
	require.NoError(t, err)
	named, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, named.Manifests, 1)
	index, err = index.ImageIndex(named.Manifests[0].Digest)
	require.NoError(t, err)
	images, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, images.Manifests, 2)
	assert.Equal(t, "arm64", images.Manifests[1].Platform.Architecture)
	image, err := index.Image(images.Manifests[1].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"/image-catalog"}, config.Config.Entrypoint)
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	files, err := layers[0].Uncompressed()
	require.NoError(t, err)
	r := tar.NewReader(files)
	h, err := r.Next()
	require.NoError(t, err)
	assert.Equal(t, "image-catalog", h.Name)
	assert.EqualValues(t, 0o755, h.Mode)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "a program", string(text))
	diff, err := layers[0].DiffID()
	require.NoError(t, err)
	assert.Equal(t, config.RootFS.DiffIDs[0], diff)
}

func unpack(t *testing.T, archive []byte, dir string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		name := filepath.Join(dir, h.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, data, 0o600))
	}
}
