// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// anew opens the layout for each call, as each `run --once` does: the suite changes it between calls.
type anew struct {
	t   *testing.T
	dir string
}

func (a anew) open() *layout.Layout {
	l, err := layout.Open(a.dir, layout.Options{Platform: node})
	require.NoError(a.t, err)
	return l
}

func (a anew) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	l := a.open()
	defer func() { _ = l.Close() }()
	return l.Resolve(ctx, ref)
}

func (a anew) Tags(ctx context.Context, repository string) ([]string, error) {
	l := a.open()
	defer func() { _ = l.Close() }()
	return l.Tags(ctx, repository)
}

func (a anew) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	l := a.open()
	defer func() { _ = l.Close() }()
	return l.Describe(ctx, repository, d)
}

func TestLayoutIsASource(t *testing.T) {
	t.Parallel()
	agenttest.TestSource(t, func(t *testing.T) agenttest.SourceUnderTest {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "layout")
		add(t, dir, ocispec.AnnotationRefName, "registry.suse.com/caasp/v4/other:1.0", image(t, "linux/amd64", false))
		publish := func(t *testing.T, platform string, tags []string) (digest.Digest, release.Build) {
			t.Helper()
			img := image(t, platform, true)
			for _, tag := range tags {
				unname(t, dir, velum+":"+tag)
				add(t, dir, ocispec.AnnotationRefName, velum+":"+tag, img)
			}
			return digestOf(t, img), build(t, img)
		}
		return agenttest.SourceUnderTest{
			Source: anew{t, dir}, Repository: velum,
			Publish: func(t *testing.T, tags ...string) (digest.Digest, release.Build) {
				return publish(t, "linux/amd64", tags)
			},
			PublishForeign: func(t *testing.T, tags ...string) digest.Digest {
				d, _ := publish(t, "linux/s390x", tags)
				return d
			},
			Retract: func(t *testing.T, tag string) { unname(t, dir, velum+":"+tag) },
		}
	})
}

// unname removes the name of an entry and keeps the entry, as skopeo does when a name moves.
func unname(t *testing.T, dir, name string) {
	t.Helper()
	edit(t, dir, func(idx *ocispec.Index) {
		for i := range idx.Manifests {
			if idx.Manifests[i].Annotations[ocispec.AnnotationRefName] == name {
				idx.Manifests[i].Annotations = nil
			}
		}
	})
}

func digestOf(t *testing.T, img v1.Image) digest.Digest {
	t.Helper()
	hash, err := img.Digest()
	require.NoError(t, err)
	return digest.Digest(hash.String())
}

// build returns the expected result of Describe for an image.
func build(t *testing.T, img v1.Image) release.Build {
	t.Helper()
	m, err := img.Manifest()
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	b := release.Build{
		Config: digest.Digest(m.Config.Digest.String()), Created: config.Created.Time, Size: m.Config.Size,
		Version: "4.0.0 [2J", // without the escape character
		Origin:  "caasp/v4/velum",
	}
	for _, layer := range m.Layers {
		b.Size += layer.Size
	}
	return b
}

func TestNames(t *testing.T) {
	t.Parallel()
	img := image(t, "linux/amd64", false)
	want := digestOf(t, img)
	for name, c := range map[string]struct {
		dir, annotation, name string
		ref                   string // empty if there is none
	}{
		"skopeo, whole":             {".", ocispec.AnnotationRefName, velum + ":4.0.0-rev1", velum + ":4.0.0-rev1"},
		"ctr, whole":                {".", "io.containerd.image.name", velum + ":4.0.0", velum + ":4.0.0"},
		"whole in a directory":      {"images/caasp", ocispec.AnnotationRefName, velum + ":4.0.0", velum + ":4.0.0"},
		"bare in its repository":    {velum, ocispec.AnnotationRefName, "4.0.0-rev1", velum + ":4.0.0-rev1"},
		"bare behind a port":        {"mirror:5000/velum", ocispec.AnnotationRefName, "1.0", "mirror:5000/velum:1.0"},
		"whole wins over its place": {velum, ocispec.AnnotationRefName, "a.io/b:1.0", "a.io/b:1.0"},
		"docker's short name":       {".", ocispec.AnnotationRefName, "sles12/velum:1.0", "docker.io/sles12/velum:1.0"},
		"bare without repository":   {".", ocispec.AnnotationRefName, "4.0.0-rev1", ""},
		"bare in just a directory":  {"images", ocispec.AnnotationRefName, "4.0.0-rev1", ""},
		"bare below uppercase":      {"a.io/B", ocispec.AnnotationRefName, "4.0.0-rev1", ""},
		"a digest is no name":       {".", ocispec.AnnotationRefName, velum + "@" + want.String(), ""},
		"without a tag":             {".", ocispec.AnnotationRefName, velum, ""},
		"traversal":                 {".", ocispec.AnnotationRefName, "../../etc/passwd:1.0", ""},
		"a control character":       {velum, ocispec.AnnotationRefName, "4.0\x1b", ""},
		"none at all":               {".", "", "", ""},
		"another annotation":        {".", ocispec.AnnotationTitle, velum + ":4.0.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			add(t, filepath.Join(top, c.dir), c.annotation, c.name, img)
			for kind, path := range map[string]string{"directory": top, "tar": packed(t, top)} {
				l, err := layout.Open(path, layout.Options{Platform: node})
				if c.ref == "" {
					require.ErrorIs(t, err, layout.ErrUnnamed, kind)
					continue
				}
				require.NoError(t, err, kind)
				wanted, err := release.ParseReference(c.ref)
				require.NoError(t, err)
				r, err := l.Resolve(t.Context(), wanted)
				require.NoError(t, err, kind)
				assert.Equal(t, release.Resolved{Digest: want, Host: "oci:" + path, Mirror: true}, r)
				tags, err := l.Tags(t.Context(), wanted.Repository)
				require.NoError(t, err)
				assert.Equal(t, []string{wanted.Tag}, tags)
				b, err := l.Describe(t.Context(), wanted.Repository, want)
				require.NoError(t, err)
				assert.Equal(t, build(t, img), b)
				require.NoError(t, l.Close())
			}
		})
	}
}

// A tree has a layout for each repository, and one more with whole names.
func TestTree(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	rev1 := add(t, filepath.Join(top, velum), ocispec.AnnotationRefName, "4.0.0-rev1", image(t, "linux/amd64", true))
	rev2 := add(t, filepath.Join(top, "more"), ocispec.AnnotationRefName, velum+":4.0.0-rev2", image(t, "linux/amd64", true))
	add(t, filepath.Join(top, velum, "inside/a/layout"), ocispec.AnnotationRefName, velum+":9", image(t, "linux/amd64", true))
	for _, path := range []string{top, packed(t, top)} {
		l := opened(t, path)
		tags, err := l.Tags(t.Context(), velum)
		require.NoError(t, err)
		assert.Equal(t, []string{"4.0.0-rev1", "4.0.0-rev2"}, tags)
		for _, d := range []digest.Digest{rev1, rev2} {
			_, err := l.Describe(t.Context(), velum, d)
			require.NoError(t, err)
		}
		_, err = l.Describe(t.Context(), "registry.suse.com/caasp/v4/other", rev1)
		require.ErrorIs(t, err, release.ErrNotFound, "a digest belongs to its repository")
	}
}

// A name of two images is an error; other names are not affected.
func TestAmbiguousNames(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	add(t, dir, ocispec.AnnotationRefName, velum+":4.0.0-rev2", image(t, "linux/amd64", false))
	add(t, dir, "io.containerd.image.name", velum+":4.0.0-rev2", image(t, "linux/amd64", false))
	l := opened(t, dir)
	_, err := l.Resolve(t.Context(), ref("4.0.0-rev2"))
	require.ErrorContains(t, err, "4.0.0-rev2: ambiguous: names both sha256:")
	require.NotErrorIs(t, err, release.ErrNotFound)
	_, err = l.Resolve(t.Context(), ref("4.0.0-rev1"))
	require.NoError(t, err)
}

// Removed media say nothing about the existence of tags.
func TestRemovedPlace(t *testing.T) {
	t.Parallel()
	dir, d := one(t)
	l := opened(t, dir)
	require.NoError(t, os.RemoveAll(dir))
	_, resolve := l.Resolve(t.Context(), ref("4.0.0-rev1"))
	_, describe := l.Describe(t.Context(), velum, d)
	for _, err := range []error{resolve, describe} {
		require.ErrorContains(t, err, velum+": mirror oci:"+dir)
		require.ErrorContains(t, err, "blob is missing")
		require.NotErrorIs(t, err, release.ErrNotFound)
	}
	_, err := l.Resolve(t.Context(), ref("-"))
	require.ErrorContains(t, err, "layout: ")
}
