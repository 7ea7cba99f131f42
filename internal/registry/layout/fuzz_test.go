// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// ask calls all functions of a layout: none may panic, and each name must be a reference that parses to itself.
func ask(t *testing.T, path, repository string) {
	t.Helper()
	l, err := layout.Open(path, layout.Options{Platform: node})
	if err != nil {
		return
	}
	defer func() { _ = l.Close() }()
	list, err := l.Tags(t.Context(), repository)
	if err != nil {
		require.ErrorIs(t, err, release.ErrNotFound)
	}
	for _, tag := range list {
		ref, err := release.ParseReference(repository + ":" + tag)
		require.NoError(t, err)
		require.Equal(t, release.Reference{Repository: repository, Tag: tag}, ref)
		if r, err := l.Resolve(t.Context(), ref); err == nil {
			_, _ = l.Describe(t.Context(), repository, r.Digest)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,` +
		`"annotations":{"org.opencontainers.image.ref.name":"1.0","io.containerd.image.name":"a.io/b:1.0"}}]}`))
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"annotations":null}],"layers":[]}`))
	dir := f.TempDir()
	home := filepath.Join(dir, "a.io/b")
	// The blob is the empty object: the digest above.
	blob := filepath.Join(home, "blobs/sha256/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a")
	require.NoError(f, os.MkdirAll(filepath.Dir(blob), 0o755))
	require.NoError(f, os.WriteFile(blob, []byte("{}"), 0o600))
	require.NoError(f, os.WriteFile(filepath.Join(home, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o600))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(home, "index.json"), data, 0o600))
		ask(t, dir, "a.io/b")
	})
}

func FuzzTar(f *testing.F) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range map[string]string{
		"a.io/b/oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"a.io/b/index.json": `{"schemaVersion":2,"manifests":[]}`,
	} {
		require.NoError(f, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}))
		_, err := w.Write([]byte(content))
		require.NoError(f, err)
	}
	require.NoError(f, w.Close())
	f.Add(out.Bytes())
	path := filepath.Join(f.TempDir(), "layout.tar")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		ask(t, path, "a.io/b")
	})
}
