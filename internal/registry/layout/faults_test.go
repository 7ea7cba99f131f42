// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

const (
	maxIndex = 4 << 20
	ociIndex = ocispec.MediaTypeImageIndex
	ociImage = ocispec.MediaTypeImageManifest
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// padded writes an index of that many bytes.
func padded(t *testing.T, dir string, size int) {
	t.Helper()
	path := filepath.Join(dir, "index.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	write(t, path, string(data)+strings.Repeat(" ", size-len(data)))
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		is    error // nil: any
		said  string
	}{
		"nothing there": {
			func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
			fs.ErrNotExist, "no such file or directory",
		},
		"an empty directory": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o755))
		}, layout.ErrNotLayout, "no file oci-layout"},
		"a FIFO": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, syscall.Mkfifo(dir, 0o600))
		}, layout.ErrNotLayout, "neither directory nor tar file"},
		"a text": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			write(t, dir, strings.Repeat("not a tar file\n", 100))
		}, layout.ErrNotLayout, "no tar file"},
		"another version": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "oci-layout"), `{"imageLayoutVersion":"2.0.0"}`)
		}, layout.ErrNotLayout, `oci-layout: version "2.0.0", not 1.0.0`},
		"no index": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "index.json")))
		}, layout.ErrNotLayout, "index.json: no such file"},
		"a torn index": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "index.json"), `{"schemaV`) },
			nil, "index.json: manifest: unexpected end",
		},
		"a huge index": {
			func(t *testing.T, dir string) { padded(t, dir, maxIndex+1) },
			nil, "index.json: too large: over 4194304 bytes",
		},
		"an ambiguous index": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "index.json"), `{"schemaVersion":2,"manifests":[],"Layers":[]}`)
		}, nil, `index.json: manifest: ambiguous: has "Layers"`},
		"a digest that is a path": {func(t *testing.T, dir string) {
			edit(t, dir, func(i *ocispec.Index) { i.Manifests[0].Digest = "sha256:../../../../etc/passwd" })
		}, nil, "invalid checksum digest"},
		"a size below zero": {func(t *testing.T, dir string) {
			edit(t, dir, func(i *ocispec.Index) { i.Manifests[0].Size = -1 })
		}, nil, "size -1"},
		"an index out of the directory": {func(t *testing.T, dir string) {
			outside := filepath.Join(t.TempDir(), "index.json")
			require.NoError(t, os.Rename(filepath.Join(dir, "index.json"), outside))
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, "index.json")))
		}, nil, "path escapes from parent"},
		"nobody's index": {func(t *testing.T, dir string) {
			edit(t, dir, func(i *ocispec.Index) { i.Manifests = nil })
		}, layout.ErrUnnamed, "no image has a full name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := one(t)
			c.spoil(t, dir)
			_, err := layout.Open(dir, layout.Options{Platform: node})
			require.ErrorContains(t, err, "oci:"+dir+": ")
			require.ErrorContains(t, err, c.said)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

// Names on removable media cannot affect the terminal that shows them.
func TestNamesAreShownQuoted(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write(t, filepath.Join(top, "\x1b[2J", "oci-layout"), `{"imageLayoutVersion":"1.0.0"}`)
	_, err := layout.Open(top, layout.Options{Platform: node})
	require.ErrorContains(t, err, `"\x1b[2J/index.json": no such file`)
}

// The largest index is accepted, and so is one at the maximum depth.
func TestOpenAcceptsTheLimit(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	padded(t, dir, maxIndex)
	opened(t, dir)
	top := t.TempDir()
	deep := strings.Repeat("d/", 15) + "d"
	require.NoError(t, os.MkdirAll(filepath.Join(top, filepath.Dir(deep)), 0o755))
	require.NoError(t, os.Rename(dir, filepath.Join(top, deep)))
	opened(t, top)
	opened(t, packed(t, top))
	over := t.TempDir()
	require.NoError(t, os.Rename(top, filepath.Join(over, "d")))
	for _, path := range []string{over, packed(t, over)} {
		_, err := layout.Open(path, layout.Options{Platform: node})
		require.ErrorIs(t, err, layout.ErrNotLayout)
	}
}

// A tar file may have a thousand images, and no more members are read.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	const most = 100_000
	var header bytes.Buffer
	w := tar.NewWriter(&header)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}))
	require.NoError(t, w.Flush())
	archive := filepath.Join(t.TempDir(), "layout.tar")
	write(t, archive, strings.Repeat(header.String(), most+1))
	_, err := layout.Open(archive, layout.Options{Platform: node})
	require.ErrorContains(t, err, "over 100000 members")
}

// Five indexes of almost 4 MiB exceed the limit for all of them together.
func TestIndexesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		dir, _ := one(t)
		padded(t, dir, maxIndex-1)
		require.NoError(t, os.Rename(dir, filepath.Join(top, name)))
	}
	_, err := layout.Open(top, layout.Options{Platform: node})
	require.ErrorContains(t, err, "over 16777216 bytes in all")
	require.NoError(t, os.RemoveAll(filepath.Join(top, "e")))
	opened(t, top)
}

func TestTarFileRefused(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	good, err := os.ReadFile(packed(t, dir))
	require.NoError(t, err)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err = z.Write(good)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	twice := packed(t, dir, func(w *tar.Writer) { member(t, w, "index.json", []byte("{}")) })
	doubled, err := os.ReadFile(twice)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		content string
		is      error
		said    string
	}{
		"gzip":             {zipped.String(), layout.ErrCompressed, "compressed: with gzip"},
		"zstd":             {"\x28\xb5\x2f\xfd" + string(good), layout.ErrCompressed, "with zstd"},
		"xz":               {"\xfd7zXZ\x00" + string(good), layout.ErrCompressed, "with xz"},
		"bzip2":            {"BZh9" + string(good), layout.ErrCompressed, "with bzip2"},
		"torn":             {string(good[:len(good)-2000]), nil, "unexpected EOF"},
		"empty":            {"", layout.ErrNotLayout, "no file oci-layout"},
		"an index twice":   {string(doubled), nil, "index.json: appears twice"},
		"docker's archive": {dockerArchive(t), layout.ErrNotLayout, "no file oci-layout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "layout.tar")
			write(t, path, c.content)
			_, err := layout.Open(path, layout.Options{Platform: node})
			require.ErrorContains(t, err, c.said)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

func dockerArchive(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	member(t, w, "manifest.json", []byte("[]"))
	require.NoError(t, w.Close())
	return out.String()
}

// A damaged layout returns errors other than "not found".
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil          func(t *testing.T, dir string, d digest.Digest)
		said           string
		onlyInDescribe bool
	}{
		"manifest missing": {func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.Remove(blobPath(dir, d)))
		}, "blob is missing: the layout is incomplete", false},
		"manifest torn": {func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.Truncate(blobPath(dir, d), 100))
		}, "blob has 100 bytes, not ", false},
		"manifest with another content": {
			func(t *testing.T, dir string, d digest.Digest) { flip(t, blobPath(dir, d)) },
			"content has digest sha256:", false,
		},
		"manifest leads out": {func(t *testing.T, dir string, d digest.Digest) {
			outside := filepath.Join(t.TempDir(), "blob")
			require.NoError(t, os.Rename(blobPath(dir, d), outside))
			require.NoError(t, os.Symlink(outside, blobPath(dir, d)))
		}, "path escapes from parent", false},
		"manifest is a FIFO": {func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.Remove(blobPath(dir, d)))
			require.NoError(t, syscall.Mkfifo(blobPath(dir, d), 0o600))
		}, "not a regular file", false},
		"manifest is a directory": {func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.Remove(blobPath(dir, d)))
			require.NoError(t, os.Mkdir(blobPath(dir, d), 0o755))
		}, "not a regular file", false},
		"manifest of the wrong type": {func(t *testing.T, dir string, _ digest.Digest) {
			edit(t, dir, func(i *ocispec.Index) { i.Manifests[0].MediaType = ociImage })
		}, "came as", false},
		"manifest too large": {func(t *testing.T, dir string, _ digest.Digest) {
			edit(t, dir, func(i *ocispec.Index) { i.Manifests[0].Size = 4<<20 + 1 })
		}, "too large: 4194305 bytes", false},
		"config missing": {func(t *testing.T, dir string, d digest.Digest) {
			require.NoError(t, os.Remove(blobPath(dir, manifestOf(t, dir, d).Config.Digest)))
		}, "config: ", true},
		"config with another content": {func(t *testing.T, dir string, d digest.Digest) {
			flip(t, blobPath(dir, manifestOf(t, dir, d).Config.Digest))
		}, "content has digest sha256:", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, d := one(t)
			c.spoil(t, dir, d)
			l := opened(t, dir)
			_, err := l.Resolve(t.Context(), ref("4.0.0-rev1"))
			if c.onlyInDescribe {
				require.NoError(t, err)
			} else {
				noAnswer(t, err, c.said)
			}
			_, err = l.Describe(t.Context(), velum, d)
			noAnswer(t, err, c.said)
		})
	}
}

func noAnswer(t *testing.T, err error, said string) {
	t.Helper()
	require.ErrorContains(t, err, velum+": mirror oci:/")
	require.ErrorContains(t, err, said)
	require.NotErrorIs(t, err, release.ErrNotFound)
	require.NotErrorIs(t, err, release.ErrPlatform)
}

// flip changes one bit and keeps the size.
func flip(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	write(t, path, string(data))
}

// A link inside of the directory is followed, as in a tree with one store of blobs.
func TestLinkInside(t *testing.T) {
	t.Parallel()
	dir, d := one(t)
	require.NoError(t, os.Rename(filepath.Join(dir, "blobs"), filepath.Join(dir, "store")))
	require.NoError(t, os.Symlink("store", filepath.Join(dir, "blobs")))
	_, err := opened(t, dir).Describe(t.Context(), velum, d)
	require.NoError(t, err)
}

func TestManifestRefused(t *testing.T) {
	t.Parallel()
	none := `"config":{"mediaType":"` + ocispec.MediaTypeImageConfig + `","digest":"` + digest.FromString("x").String() + `","size":1}`
	for name, c := range map[string]struct{ mediaType, content, said string }{
		"manifest that is an index, too": {ociImage, `{"schemaVersion":2,` + none + `,"layers":[],"manifests":[]}`, `ambiguous: has "manifests"`},
		"index that is a manifest, too":  {ociIndex, `{"schemaVersion":2,"manifests":[],"CONFIG":{}}`, `ambiguous: has "CONFIG"`},
		"schema 1":                       {ociImage, `{"schemaVersion":1,` + none + `}`, "schema version 1"},
		"another type inside":            {ociImage, `{"schemaVersion":2,"mediaType":"` + ociIndex + `",` + none + `}`, "came as"},
		"no JSON":                        {ociImage, `[]`, "manifest: json"},
		"no config":                      {ociImage, `{"schemaVersion":2}`, "invalid checksum digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := one(t)
			d := raw(t, dir, c.mediaType, c.content)
			l := opened(t, dir)
			_, err := l.Resolve(t.Context(), ref("raw"))
			noAnswer(t, err, c.said)
			_, err = l.Describe(t.Context(), velum, d)
			noAnswer(t, err, c.said)
			_, err = l.Resolve(t.Context(), ref("4.0.0-rev1"))
			assert.NoError(t, err)
		})
	}
}

// A chart under a newer tag is a valid answer about that tag.
func TestChartIsNoImage(t *testing.T) {
	t.Parallel()
	dir, _ := one(t)
	d := raw(t, dir, ociImage, `{"schemaVersion":2,"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"`+
		digest.FromString("x").String()+`","size":1}}`)
	_, err := opened(t, dir).Describe(t.Context(), velum, d)
	noAnswer(t, err, `config "application/vnd.cncf.helm.config.v1+json": not an image`)
	require.ErrorIs(t, err, release.ErrNotImage)
}
