// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ggcr "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const velum = "registry.suse.com/caasp/v4/velum"

// node is the platform of all tests, on any machine.
var node = platforms.OnlyStrict(ocispec.Platform{OS: "linux", Architecture: "amd64"})

func ref(tag string) release.Reference { return release.Reference{Repository: velum, Tag: tag} }

// opened opens a path and closes it at the end of the test.
func opened(t *testing.T, path string) *layout.Layout {
	t.Helper()
	l, err := layout.Open(path, layout.Options{Platform: node})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// image returns a random image for a platform such as "linux/amd64", with docker's media types or OCI's.
func image(t *testing.T, platform string, oci bool) v1.Image {
	t.Helper()
	img, err := random.Image(300, 2)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, _ = strings.Cut(platform, "/")
	config.Created = v1.Time{Time: time.Date(2020, 9, 1, 12, 0, 0, 0, time.UTC)}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.version": "4.0.0\x1b[2J",
		"org.opensuse.reference":           velum + ":4.0.0-rev1-build1.3",
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	if oci {
		img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	return img
}

// index returns an index with an image for each platform.
func index(t *testing.T, on ...string) v1.ImageIndex {
	t.Helper()
	var idx v1.ImageIndex = empty.Index
	for _, platform := range on {
		p, err := v1.ParsePlatform(platform)
		require.NoError(t, err)
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{
			Add: image(t, platform, true), Descriptor: v1.Descriptor{Platform: p},
		})
	}
	return idx
}

// add writes an image or index into the layout in a directory, which it creates if needed, with a name in the
// annotation.
func add(t *testing.T, dir, annotation, name string, what mutate.Appendable) digest.Digest {
	t.Helper()
	path, err := ggcr.FromPath(dir)
	if err != nil {
		path, err = ggcr.Write(dir, empty.Index)
	}
	require.NoError(t, err)
	var options []ggcr.Option
	if name != "" {
		options = append(options, ggcr.WithAnnotations(map[string]string{annotation: name}))
	}
	switch w := what.(type) {
	case v1.Image:
		require.NoError(t, path.AppendImage(w, options...))
	case v1.ImageIndex:
		require.NoError(t, path.AppendIndex(w, options...))
	default:
		require.Fail(t, "neither image nor index")
	}
	hash, err := what.Digest()
	require.NoError(t, err)
	return digest.Digest(hash.String())
}

// one returns a layout with one image.
func one(t *testing.T) (dir string, d digest.Digest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	return dir, add(t, dir, ocispec.AnnotationRefName, velum+":4.0.0-rev1", image(t, "linux/amd64", false))
}

// edit changes index.json of a layout.
func edit(t *testing.T, dir string, change func(*ocispec.Index)) {
	t.Helper()
	path := filepath.Join(dir, "index.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var idx ocispec.Index
	require.NoError(t, json.Unmarshal(data, &idx))
	change(&idx)
	data, err = json.Marshal(idx)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func blobPath(dir string, d digest.Digest) string {
	return filepath.Join(dir, "blobs", "sha256", d.Encoded())
}

// manifestOf reads a manifest from a layout.
func manifestOf(t *testing.T, dir string, d digest.Digest) ocispec.Manifest {
	t.Helper()
	data, err := os.ReadFile(blobPath(dir, d))
	require.NoError(t, err)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(data, &m))
	return m
}

// raw writes a manifest with any content into a layout, under a name.
func raw(t *testing.T, dir, mediaType, content string) digest.Digest {
	t.Helper()
	d := digest.FromString(content)
	require.NoError(t, os.WriteFile(blobPath(dir, d), []byte(content), 0o600))
	edit(t, dir, func(idx *ocispec.Index) {
		idx.Manifests = append(idx.Manifests, ocispec.Descriptor{
			MediaType: mediaType, Digest: d, Size: int64(len(content)),
			Annotations: map[string]string{ocispec.AnnotationRefName: velum + ":raw"},
		})
	})
	return d
}

// packed returns a tar file of a directory, as tar writes it; more changes it at its end.
func packed(t *testing.T, dir string, more ...func(*tar.Writer)) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		member(t, w, "./"+name, data)
		return nil
	}))
	for _, m := range more {
		m(w)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "layout.tar")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

func member(t *testing.T, w *tar.Writer, name string, data []byte) {
	t.Helper()
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}))
	_, err := w.Write(data)
	require.NoError(t, err)
}
