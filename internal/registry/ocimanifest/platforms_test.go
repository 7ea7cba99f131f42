// SPDX-License-Identifier: Apache-2.0

package ocimanifest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// child is an entry of an index: the platform in the index, and the one in its config; or a nested index.
type child struct {
	named string // OS/ARCHITECTURE/VARIANT, as written; "-": no platform, "{}": an empty one
	is    string // the config's platform; empty: the same as named
	in    []child
	more  func(*ocispec.Platform) // changes the platform in the index
}

// chosen are indexes, and the path of the entry that runs on a node, through nested indexes; empty if there is none.
var chosen = []struct {
	title, node string
	index       []child
	want        []int
}{
	{"its own", "linux/amd64", []child{{named: "linux/arm64"}, {named: "linux/amd64"}}, []int{1}},
	{"the first of two", "linux/amd64", []child{{named: "linux/amd64"}, {named: "linux/amd64"}}, []int{0}},
	{"others only", "linux/amd64", []child{{named: "linux/arm64"}, {named: "windows/amd64"}}, nil},
	{"empty", "linux/amd64", nil, nil},
	{"old spelling", "linux/amd64", []child{{named: "Linux/x86_64"}}, []int{0}},

	{"amd64 has no variant", "linux/amd64", []child{{named: "linux/amd64/v3"}, {named: "linux/amd64/v2"}, {named: "linux/amd64"}}, []int{2}},
	{"amd64 v1 is none", "linux/amd64", []child{{named: "linux/amd64/v2"}, {named: "linux/amd64/v1"}}, []int{1}},
	{"amd64 variants only", "linux/amd64", []child{{named: "linux/amd64/v2"}, {named: "linux/amd64/v3"}}, nil},
	{"amd64 config with a variant", "linux/amd64", []child{{named: "linux/amd64", is: "linux/amd64/v2"}}, nil},
	{"386 on amd64", "linux/amd64", []child{{named: "linux/arm64"}, {named: "linux/386"}}, []int{1}},
	{"386 after amd64", "linux/amd64", []child{{named: "linux/386"}, {named: "linux/amd64"}}, []int{1}},
	{"amd64 on 386", "linux/386", []child{{named: "linux/amd64"}}, nil},

	{"arm64 v8 on arm64", "linux/arm64", []child{{named: "linux/arm64/v8"}}, []int{0}},
	{"arm64 on arm64 v8", "linux/arm64/v8", []child{{named: "linux/arm64"}}, []int{0}},
	{"arm64 and v8 are one", "linux/arm64/v8", []child{{named: "linux/arm64", is: "linux/arm64/v8"}, {named: "linux/arm64/v8"}}, []int{0}},
	{"arm64 v8.1 on arm64 v8", "linux/arm64/v8", []child{{named: "linux/arm64/v8.1"}, {named: "linux/arm64/v9"}}, nil},
	{"arm64 v9 on v9", "linux/arm64/v9", []child{{named: "linux/arm64/v8"}, {named: "linux/arm64/v9"}}, []int{1}},
	{"arm64 v8 on v9", "linux/arm64/v9", []child{{named: "linux/arm/v7"}, {named: "linux/arm64/v8"}}, []int{1}},
	{"arm on arm64", "linux/arm64", []child{{named: "linux/arm/v6"}, {named: "linux/arm/v7"}}, []int{1}},
	{"arm v7 on v8", "linux/arm/v8", []child{{named: "linux/arm/v6"}, {named: "linux/arm/v7"}, {named: "linux/arm/v5"}}, []int{1}},
	{"arm is v7", "linux/arm/v7", []child{{named: "linux/arm/v6"}, {named: "linux/arm"}}, []int{1}},
	{"arm v7 on v6", "linux/arm/v6", []child{{named: "linux/arm/v7"}, {named: "linux/arm"}}, nil},

	{"os.version of Linux", "linux/amd64", []child{{named: "linux/amd64", more: version("6.4")}, {named: "linux/amd64"}}, []int{0}},
	{"os.features", "linux/amd64", []child{{named: "linux/amd64", more: features}, {named: "linux/amd64"}}, []int{1}},
	{"os.features only", "linux/amd64", []child{{named: "linux/amd64", more: features}}, nil},

	{"attestations of BuildKit", "linux/amd64", []child{{named: "unknown/unknown"}, {named: "linux/amd64"}, {named: "unknown/unknown"}}, []int{1}},
	{"an attestation only", "linux/amd64", []child{{named: "unknown/unknown", is: "linux/amd64"}}, nil},
	{"empty platform", "linux/amd64", []child{{named: "{}", is: "linux/amd64"}}, nil},
	{"empty platform first", "linux/amd64", []child{{named: "{}", is: "linux/amd64"}, {named: "linux/amd64"}}, []int{1}},
	{"no OS", "linux/amd64", []child{{named: "/amd64"}}, []int{0}},
	{"no platform", "linux/amd64", []child{{named: "-", is: "linux/amd64"}}, []int{0}},
	{"no platform, the first is tried", "linux/amd64", []child{{named: "-", is: "linux/arm64"}, {named: "-", is: "linux/amd64"}}, nil},
	{"no platform, with others", "linux/amd64", []child{{named: "linux/arm64"}, {named: "-", is: "linux/amd64"}}, []int{1}},
	{"a platform before none", "linux/amd64", []child{{named: "-", is: "linux/amd64"}, {named: "linux/386"}}, []int{1}},
	{"an index that lies", "linux/amd64", []child{{named: "linux/amd64", is: "linux/arm64"}}, nil},
	{"a config that says nothing", "linux/amd64", []child{{named: "linux/amd64", is: "{}"}}, nil},

	{"index in an index", "linux/amd64", []child{
		{named: "linux/arm64"}, {named: "linux/amd64", in: []child{{named: "linux/arm64"}, {named: "linux/amd64"}}},
	}, []int{1, 1}},
	{"index without a platform", "linux/amd64", []child{{named: "-", in: []child{{named: "linux/amd64"}}}, {named: "linux/arm64"}}, []int{0, 0}},
	{"index in an index of others", "linux/amd64", []child{{named: "linux/amd64", in: []child{{named: "linux/arm64"}}}}, nil},
	{"the first index is tried", "linux/amd64", []child{
		{named: "-", in: []child{{named: "linux/arm64"}}}, {named: "-", in: []child{{named: "linux/amd64"}}},
	}, nil},
	{"four indexes", "linux/amd64", []child{
		{named: "-", in: []child{{named: "-", in: []child{{named: "-", in: []child{{named: "linux/amd64"}}}}}}},
	}, []int{0, 0, 0, 0}},
}

func version(v string) func(*ocispec.Platform) { return func(p *ocispec.Platform) { p.OSVersion = v } }
func features(p *ocispec.Platform)             { p.OSFeatures = []string{"sse4"} }

// parts parses OS/ARCHITECTURE/VARIANT without normalizing it.
func parts(text string) ocispec.Platform {
	p := strings.Split(strings.Trim(text, "{}")+"//", "/")
	return ocispec.Platform{OS: p[0], Architecture: p[1], Variant: p[2]}
}

// store holds documents by their digests, as containerd's content store does.
type store map[digest.Digest][]byte

func (s store) put(t require.TestingT, mediaType string, v any) ocispec.Descriptor {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	d := digest.FromBytes(data)
	s[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// image adds an image whose config has a platform; where is its name.
func (s store) image(t require.TestingT, platform, where string) ocispec.Descriptor {
	config := s.put(t, ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: parts(platform), Config: ocispec.ImageConfig{Labels: map[string]string{"where": where}},
	})
	return s.put(t, ocispec.MediaTypeImageManifest, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []any{},
	})
}

// index adds an index with all its contents, and records the images by their path.
func (s store) index(t require.TestingT, entries []child, at []int, places map[string]digest.Digest) ocispec.Descriptor {
	list := []ocispec.Descriptor{}
	for i, c := range entries {
		place := append(append([]int{}, at...), i)
		var desc ocispec.Descriptor
		if c.in != nil {
			desc = s.index(t, c.in, place, places)
		} else {
			is := c.is
			if is == "" {
				is = c.named
			}
			desc = s.image(t, is, fmt.Sprint(place))
			places[fmt.Sprint(place)] = desc.Digest
		}
		if c.named != "-" {
			p := parts(c.named)
			if c.more != nil {
				c.more(&p)
			}
			desc.Platform = &p
		}
		list = append(list, desc)
	}
	return s.put(t, ocispec.MediaTypeImageIndex, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": list,
	})
}

// ReaderAt makes store a content.Provider.
func (s store) ReaderAt(_ context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	data, ok := s[desc.Digest]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return reader{bytes.NewReader(data)}, nil
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }

// containerd returns containerd's choice for an image: the manifest that its client pulls and reads, if its config says
// that it can be unpacked here.
func (s store) containerd(t require.TestingT, top ocispec.Descriptor, m platforms.MatchComparer) digest.Digest {
	ctx := context.Background()
	var pulled []ocispec.Descriptor
	next := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(s), m), m, 1)
	err := images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if images.IsManifestType(d.MediaType) {
			pulled = append(pulled, d)
		}
		return next(ctx, d)
	}), top)
	config, errConfig := images.Config(ctx, s, top, m)
	if errors.Is(err, errdefs.ErrNotFound) || errors.Is(errConfig, errdefs.ErrNotFound) {
		return ""
	}
	require.NoError(t, errors.Join(err, errConfig))
	require.Len(t, pulled, 1)
	manifest, err := images.Manifest(ctx, s, pulled[0], nil)
	require.NoError(t, err)
	require.Equal(t, manifest.Config.Digest, config.Digest, "it reads what it has pulled")
	is, err := images.ConfigPlatform(ctx, s, config)
	require.NoError(t, err)
	if !m.Match(is) {
		return ""
	}
	return pulled[0].Digest
}

// content reads the store for Describe.
func (s store) content() ocimanifest.Content {
	return ocimanifest.Content{
		Document: func(d ocispec.Descriptor) (ocimanifest.Document, error) {
			return ocimanifest.Parse(d.MediaType, s[d.Digest])
		},
		Config: func(d ocispec.Descriptor) ([]byte, error) { return s[d.Digest], nil },
	}
}

const velum = "registry.suse.com/caasp/v4/velum"

// registry serves the store, with the top's media type for everything: nested documents have the kind that their index
// names.
func (s store) registry(t *testing.T, top ocispec.Descriptor, m platforms.MatchComparer) *registry.Registry {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := s[digest.Digest(path.Base(r.URL.Path))]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", top.MediaType)
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	certs := t.TempDir()
	write(t, filepath.Join(certs, "registry.suse.com", "hosts.toml"), fmt.Appendf(nil, "server = %q\n", server.URL))
	r := registry.New(registry.Options{CertsDirs: []string{certs}, Platform: m})
	t.Cleanup(r.Close)
	return r
}

func (s store) layout(t *testing.T, top ocispec.Descriptor, m platforms.MatchComparer) *layout.Layout {
	t.Helper()
	dir := t.TempDir()
	for d, data := range s {
		write(t, filepath.Join(dir, "blobs", "sha256", d.Encoded()), data)
	}
	top.Annotations = map[string]string{ocispec.AnnotationRefName: velum + ":4.0.0"}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{top}})
	require.NoError(t, err)
	write(t, filepath.Join(dir, "index.json"), index)
	write(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
	l, err := layout.Open(dir, layout.Options{Platform: m})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

// describers returns all implementations that describe an image, by their source.
func (s store) describers(t *testing.T, top ocispec.Descriptor, m platforms.MatchComparer) map[string]source.Source {
	t.Helper()
	return map[string]source.Source{"registry": s.registry(t, top, m), "layout": s.layout(t, top, m)}
}

// Registry, layout and containerd choose the same image from an index.
func TestPlatformChoiceMatchesContainerd(t *testing.T) {
	t.Parallel()
	require.Equal(t, "linux", runtime.GOOS, "the OS of an entry that names none")
	for _, c := range chosen {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			s, places := store{}, map[string]digest.Digest{}
			top, m := s.index(t, c.index, nil, places), platforms.Only(parts(c.node))
			var want digest.Digest
			if c.want != nil {
				want = places[fmt.Sprint(c.want)]
				require.NotEmpty(t, want)
			}
			assert.Equal(t, want, s.containerd(t, top, m), "containerd")
			for name, from := range s.describers(t, top, m) {
				got, err := from.Describe(t.Context(), velum, top.Digest)
				assert.Equal(t, want, got.Manifest, name)
				if want == "" {
					require.ErrorIs(t, err, release.ErrPlatform, name)
					continue
				}
				require.NoError(t, err, name)
			}
		})
	}
}

// A manifest without an index: containerd accepts any, and unpacks none whose config names another platform.
func TestPlainManifests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node, is string
		runs     bool
	}{
		{"linux/amd64", "linux/amd64", true},
		{"linux/amd64", "linux/amd64/v1", true},
		{"linux/amd64", "linux/amd64/v2", false},
		{"linux/amd64", "linux/386", true},
		{"linux/amd64", "linux/arm64", false},
		{"linux/amd64", "windows/amd64", false},
		{"linux/amd64", "linux/", false}, // no architecture, as in the config of a signature
		{"linux/amd64", "{}", false},
		{"linux/amd64", "/amd64", true},
		{"linux/arm64/v8", "linux/arm64", true},
		{"linux/arm64", "linux/arm64/v8", true},
		{"linux/arm/v8", "linux/arm/v7", true},
		{"linux/arm/v6", "linux/arm", false},
	} {
		t.Run(strings.ReplaceAll(c.is+" on "+c.node, "/", "-"), func(t *testing.T) {
			t.Parallel()
			s := store{}
			top, m := s.image(t, c.is, ""), platforms.Only(parts(c.node))
			assert.Equal(t, c.runs, s.containerd(t, top, m) == top.Digest)
			for name, from := range s.describers(t, top, m) {
				got, err := from.Describe(t.Context(), velum, top.Digest)
				assert.Empty(t, got.Manifest, "no index has led to it")
				if !c.runs {
					require.ErrorIs(t, err, release.ErrPlatform, name)
					continue
				}
				require.NoError(t, err, name)
				assert.NotEmpty(t, got.Config)
			}
		})
	}
}

// Nested indexes are limited. Exceeding the limit is not ErrPlatform.
func TestIndexesAreBounded(t *testing.T) {
	t.Parallel()
	entries := []child{{named: "linux/amd64"}}
	for depth := 1; depth <= ocimanifest.MaxIndexes+1; depth++ {
		s := store{}
		top, m := s.index(t, entries, nil, map[string]digest.Digest{}), platforms.Only(parts("linux/amd64"))
		for name, from := range s.describers(t, top, m) {
			_, err := from.Describe(t.Context(), velum, top.Digest)
			if depth <= ocimanifest.MaxIndexes {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, top.Digest.String()+": more than 4 nested indexes", name)
			require.NotErrorIs(t, err, release.ErrPlatform, name)
			require.ErrorAs(t, err, new(*release.SourceError), name)
		}
		entries = []child{{named: "-", in: entries}}
	}
}

// For any index, Describe returns the manifest that containerd pulls, or none.
func TestDescribeMatchesContainerd(t *testing.T) {
	t.Parallel()
	platform := rapid.SampledFrom([]string{
		"linux/amd64", "linux/amd64/v1", "linux/amd64/v2", "linux/amd64/v3", "linux/386", "linux/x86_64", "linux/arm64", "linux/arm64/v8",
		"linux/arm64/v8.2", "linux/arm64/v9", "linux/arm", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm/v8", "linux/s390x",
		"windows/amd64", "unknown/unknown", "{}", "linux/", "/amd64",
	})
	var entries func(depth int) *rapid.Generator[[]child]
	entries = func(depth int) *rapid.Generator[[]child] {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) child {
			c := child{named: rapid.OneOf(platform, rapid.Just("-")).Draw(t, "named"), is: platform.Draw(t, "is")}
			if rapid.Bool().Draw(t, "honest") && c.named != "-" {
				c.is = c.named
			}
			if depth > 0 && rapid.IntRange(0, 3).Draw(t, "nested") == 0 {
				c.in = entries(depth-1).Draw(t, "in")
			}
			if rapid.IntRange(0, 4).Draw(t, "more") == 0 {
				c.more = rapid.SampledFrom([]func(*ocispec.Platform){features, version("10.0.1")}).Draw(t, "what")
			}
			return c
		}), 0, 5)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := store{}
		top := s.index(t, entries(2).Draw(t, "index"), nil, map[string]digest.Digest{})
		m := platforms.Only(parts(platform.Draw(t, "node")))
		got, err := s.content().Describe(top, m)
		if err != nil {
			require.ErrorIs(t, err, ocimanifest.ErrPlatform)
		}
		assert.Equal(t, s.containerd(t, top, m), got.Manifest)
	})
}
