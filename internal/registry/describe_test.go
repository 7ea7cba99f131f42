// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// config serves an image config changed by edit.
func (f *fake) config(t testing.TB, edit func(map[string]any)) ocispec.Descriptor {
	t.Helper()
	config := map[string]any{"os": "linux", "architecture": "amd64"}
	if edit != nil {
		edit(config)
	}
	desc := f.set("application/octet-stream", encode(t, config))
	desc.MediaType = images.MediaTypeDockerSchema2Config
	return desc
}

func (f *fake) index(t testing.TB, manifests ...ocispec.Descriptor) ocispec.Descriptor {
	t.Helper()
	return f.set(ocispec.MediaTypeImageIndex, encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": manifests,
	}))
}

func on(desc ocispec.Descriptor, os, arch string) ocispec.Descriptor {
	desc.Platform = &ocispec.Platform{OS: os, Architecture: arch}
	return desc
}

// Content of a host for a digest, and the expected result of Describe: an error with that text, or none.
func TestDescribeRefuses(t *testing.T) {
	t.Parallel()
	edited := func(edit func(map[string]any)) func(*testing.T, *fake) ocispec.Descriptor {
		return func(t *testing.T, f *fake) ocispec.Descriptor { return f.image(t, "linux", "amd64", edit) }
	}
	contents := []struct {
		title string
		serve func(*testing.T, *fake) ocispec.Descriptor
		want  string
	}{
		{"good", edited(nil), ""},
		{"manifests in a manifest", edited(func(m map[string]any) { m["manifests"] = []string{} }), `ambiguous: has "manifests"`},
		{"no image", func(t *testing.T, f *fake) ocispec.Descriptor {
			config := f.config(t, nil)
			config.MediaType = "application/vnd.cncf.helm.config.v1+json"
			return f.manifest(t, config, nil)
		}, "not an image"},
		{"plain text", func(t *testing.T, f *fake) ocispec.Descriptor { return f.set("text/plain", []byte("{}")) }, "not an image"},
		{"no content type", func(t *testing.T, f *fake) ocispec.Descriptor { return f.set("", []byte("{}")) }, "content-type"},
		{"no JSON", func(t *testing.T, f *fake) ocispec.Descriptor {
			return f.set(ocispec.MediaTypeImageManifest, []byte("<html>"))
		}, "invalid character"},
		{"wrong digest", func(t *testing.T, f *fake) ocispec.Descriptor {
			good, evil := f.image(t, "linux", "amd64", nil), f.image(t, "linux", "arm64", nil)
			f.content[good.Digest.String()] = f.content[evil.Digest.String()]
			return good
		}, "content has digest"},
		{"wrong config", func(t *testing.T, f *fake) ocispec.Descriptor {
			good, evil := f.config(t, nil), f.config(t, func(c map[string]any) { c["os"] = "LINUX" })
			f.content[good.Digest.String()] = f.content[evil.Digest.String()]
			return f.manifest(t, good, nil)
		}, "content has digest"},
		{"config of another size", func(t *testing.T, f *fake) ocispec.Descriptor {
			config := f.config(t, nil)
			config.Size++
			return f.manifest(t, config, nil)
		}, "bytes, not"},
		{"config is no JSON", func(t *testing.T, f *fake) ocispec.Descriptor {
			config := f.set("x/y", []byte("<html>"))
			config.MediaType = ocispec.MediaTypeImageConfig
			return f.manifest(t, config, nil)
		}, "config: invalid character"},
		{"config vanished", func(t *testing.T, f *fake) ocispec.Descriptor {
			config := f.config(t, nil)
			delete(f.content, config.Digest.String())
			return f.manifest(t, config, nil)
		}, "404: not found"},
		{"digest vanished", func(t *testing.T, f *fake) ocispec.Descriptor {
			desc := f.image(t, "linux", "amd64", nil)
			delete(f.content, desc.Digest.String())
			return desc
		}, "404: not found"},
		{"another platform", func(t *testing.T, f *fake) ocispec.Descriptor { return f.image(t, "linux", "s390x", nil) }, "not for this platform"},
		{"index for others", func(t *testing.T, f *fake) ocispec.Descriptor {
			return f.index(t, on(f.image(t, "linux", "arm64", nil), "linux", "arm64"))
		}, "not for this platform"},
		{"child of another kind", func(t *testing.T, f *fake) ocispec.Descriptor {
			child := f.image(t, "linux", "amd64", nil)
			child.MediaType = ocispec.MediaTypeImageIndex
			return f.index(t, on(child, "linux", "amd64"))
		}, `ambiguous: has "`},
		{"child of no kind", func(t *testing.T, f *fake) ocispec.Descriptor {
			child := f.image(t, "linux", "amd64", nil)
			child.MediaType = ""
			return f.index(t, on(child, "linux", "amd64"))
		}, "not an image"},
		{"child vanished", func(t *testing.T, f *fake) ocispec.Descriptor {
			child := f.image(t, "linux", "amd64", nil)
			delete(f.content, child.Digest.String())
			return f.index(t, on(child, "linux", "amd64"))
		}, "404: not found"},
		{"child of another size", func(t *testing.T, f *fake) ocispec.Descriptor {
			child := f.image(t, "linux", "amd64", nil)
			child.Size--
			return f.index(t, on(child, "linux", "amd64"))
		}, "bytes, not"},
	}
	for _, c := range contents {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			desc := c.serve(t, f)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			got, err := r.Describe(t.Context(), f.repository(), desc.Digest)
			if c.want == "" {
				require.NoError(t, err)
				assert.NotEmpty(t, got.Config)
				return
			}
			require.ErrorContains(t, err, c.want)
			assert.Zero(t, got)
			var source *release.SourceError
			if strings.Contains(c.want, "platform") {
				assert.ErrorIs(t, err, release.ErrPlatform)
				assert.NotErrorAs(t, err, &source)
				if c.title == "index for others" {
					assert.Len(t, f.log(), 1, "the index is enough")
				}
			} else {
				require.ErrorAs(t, err, &source)
				assert.Equal(t, f.host(), source.Host)
				assert.Equal(t, c.title == "no image", errors.Is(err, release.ErrNotImage))
			}
		})
	}
}

func TestDescribeReadsTheConfig(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	config := f.config(t, func(c map[string]any) {
		c["created"] = "2020-09-01T14:00:00+02:00"
		c["config"] = map[string]any{"Labels": map[string]string{ocispec.AnnotationVersion: "4.\x1b[31m0" + strings.Repeat("x", 200)}}
	})
	desc := f.manifest(t, config, nil)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	got, err := r.Describe(t.Context(), f.repository(), desc.Digest)
	require.NoError(t, err)
	assert.Equal(t, release.Build{
		Config:  config.Digest,
		Created: time.Date(2020, 9, 1, 12, 0, 0, 0, time.UTC),
		Size:    config.Size + 1000,
		Version: ("4. [31m0" + strings.Repeat("x", 200))[:ocimanifest.MaxVersion-len("…")] + "…",
	}, got)
}

func TestDescribeAsksTheNextHost(t *testing.T) {
	t.Parallel()
	spoilt := map[string]func(*fake, ocispec.Descriptor){
		"not there": func(f *fake, d ocispec.Descriptor) { delete(f.content, d.Digest.String()) },
		"other bytes": func(f *fake, d ocispec.Descriptor) {
			f.content[d.Digest.String()] = served{kind: images.MediaTypeDockerSchema2Manifest, body: []byte("{}")}
		},
		"other type": func(f *fake, d ocispec.Descriptor) {
			was := f.content[d.Digest.String()]
			was.kind = ocispec.MediaTypeImageIndex
			f.content[d.Digest.String()] = was
		},
	}
	for title, spoil := range spoilt {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			upstream, mirror := newFake(t), newFake(t)
			desc := upstream.image(t, "linux", "amd64", nil)
			spoil(mirror, mirror.image(t, "linux", "amd64", nil))
			r, _ := newRegistry(t, certsD(t, upstream.host(), fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)))
			_, err := r.Describe(t.Context(), upstream.repository(), desc.Digest)
			require.NoError(t, err)
			assert.Len(t, mirror.log(), 1)
		})
	}
}

// A chart is no image on any host: an upstream that cannot be reached must not hide that.
func TestDescribeAsksOneHostForWhatIsNoImage(t *testing.T) {
	t.Parallel()
	upstream, mirror := newFake(t), newFake(t)
	config := mirror.config(t, nil)
	config.MediaType = "application/vnd.cncf.helm.config.v1+json"
	desc := mirror.manifest(t, config, nil)
	r, _ := newRegistry(t, certsD(t, upstream.host(), fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)))
	_, err := r.Describe(t.Context(), upstream.repository(), desc.Digest)
	require.ErrorIs(t, err, release.ErrNotImage)
	require.ErrorContains(t, err, `config "application/vnd.cncf.helm.config.v1+json"`)
	assert.Empty(t, upstream.log())
}

// Harbor refuses one image with 412, Artifactory and Nexus with 403, as long as a policy forbids it. Other refusals are
// not about one image, and neither is a store's.
func TestOneManifestIsRefused(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		http.StatusForbidden: true, http.StatusPreconditionFailed: true, http.StatusUnavailableForLegalReasons: true,
		http.StatusUnauthorized: false, http.StatusNotFound: false, http.StatusTooManyRequests: false,
		http.StatusBadGateway: false, http.StatusBadRequest: false,
	} {
		f := newFake(t)
		desc := f.image(t, "linux", "amd64", nil)
		f.tag("1", desc)
		kind := "/manifests/"
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if strings.Contains(req.URL.Path, kind) {
				w.WriteHeader(status)
			}
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		assert.Equal(t, want, sourceError(t, f.poll(t, r)).Refused, "poll: %d", status)
		r, _ = newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		_, err := r.Describe(t.Context(), f.repository(), desc.Digest)
		assert.Equal(t, want, sourceError(t, err).Refused, "describe: %d", status)
		kind = "/blobs/"
		r, _ = newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		_, err = r.Describe(t.Context(), f.repository(), desc.Digest)
		assert.False(t, sourceError(t, err).Refused, "config: %d", status)
	}
}

func FuzzManifest(f *testing.F) {
	good := `{"schemaVersion":2,"config":{"mediaType":"` + ocispec.MediaTypeImageConfig + `","digest":"sha256:` +
		strings.Repeat("a", 64) + `","size":5},"layers":[{"digest":"sha256:` + strings.Repeat("b", 64) + `","size":7}]}`
	f.Add(ocispec.MediaTypeImageManifest, []byte(good))
	f.Add(ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:`+strings.Repeat("c", 64)+`","size":1}]}`))
	f.Add(images.MediaTypeDockerSchema2Manifest+"; charset=utf-8", []byte(`{"schemaVersion":2,"Manifests":[]}`))
	f.Add("text/plain", []byte(`{}`))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		d, err := parseManifest(contentType, body)
		if err != nil {
			return
		}
		if d.IsIndex() {
			assert.Empty(t, d.Layers)
			assert.Empty(t, d.Config.Digest)
		} else {
			assert.Empty(t, d.Manifests)
			assert.NoError(t, d.Config.Digest.Validate())
		}
		for _, m := range append(d.Manifests, d.Layers...) {
			assert.NoError(t, m.Digest.Validate())
		}
		if size, err := d.Size(); err == nil {
			assert.GreaterOrEqual(t, size, int64(0))
		}
	})
}
