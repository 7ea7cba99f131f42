// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// changing are layers that delete entries of lower ones (OCI image specification, section Whiteouts). A name with a
// final slash is a directory.
var changing = [][]string{
	{"a/", "a/one", "a/two", "b/", "b/x", "c"},
	{"a/", "a/.wh.one", "a/three", "b/", "b/.wh..wh..opq", "b/y", ".wh.c"},
	{"c/", "c/z", "d"},
	{"c/", "c/.wh.z", "c/one", "a/", "a/one"},
}

// changed is the resulting tree.
var changed = []string{"a", "a/one", "a/three", "a/two", "b", "b/y", "c", "c/one", "d"}

// testStageWhiteouts checks that layers that containerd unpacks in parallel, where it can, give the same tree.
func testStageWhiteouts(t *testing.T, r *imagesRig) {
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
	})
	require.NoError(t, err)
	for _, names := range changing {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return archive(names) })
		require.NoError(t, err)
		image, err = mutate.AppendLayers(image, layer)
		require.NoError(t, err)
	}
	ref, err := name.NewTag(r.Registry.Ref("whiteouts/velum:1-rev1"), name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image, remote.WithContext(t.Context())))
	d, err := image.Digest()
	require.NoError(t, err)
	release := release.Release{Repository: r.Registry.Ref("whiteouts/velum"), Tag: "1-rev1", Digest: digest.Digest(d.String())}
	r.stage(release)

	staged, err := r.client.GetImage(t.Context(), r.pin(release).Name)
	require.NoError(t, err)
	layers, err := staged.RootFS(t.Context())
	require.NoError(t, err)
	// Without a lease, containerd's collector may remove the view before it is mounted.
	ctx, done, err := r.client.WithLease(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, done(context.WithoutCancel(ctx))) }()
	mounts, err := r.client.SnapshotService("overlayfs").View(ctx, "whiteouts", chainID(layers).String())
	require.NoError(t, err)
	var seen []string
	require.NoError(t, mount.WithReadonlyTempMount(ctx, mounts, func(root string) error {
		return fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
			if path != "." {
				seen = append(seen, path)
			}
			return err
		})
	}))
	assert.Equal(t, changed, seen)
}

func archive(names []string) (io.ReadCloser, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
		if name[len(name)-1] == '/' {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&b), w.Close()
}
