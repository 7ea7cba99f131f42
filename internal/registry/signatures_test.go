// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestManifestByTagAndDigest(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	desc := f.image(t, "linux", "amd64", nil)
	f.tag("sha256-00.sig", desc)
	r, rec := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	for _, name := range []string{"sha256-00.sig", desc.Digest.String()} {
		kind, body, err := r.Manifest(t.Context(), f.repository(), name)
		require.NoError(t, err)
		assert.Equal(t, desc.MediaType, kind)
		assert.Equal(t, desc.Digest, digest.FromBytes(body))
	}
	assert.Len(t, rec.sent, 2)
	_, _, err := r.Manifest(t.Context(), f.repository(), "sha256-01.sig")
	require.ErrorIs(t, err, release.ErrNotFound)
	for _, name := range []string{"", "../x", "a b", "sha256:00"} {
		_, _, err := r.Manifest(t.Context(), f.repository(), name)
		require.ErrorIs(t, err, tags.ErrInvalid, name)
	}
	assert.Len(t, rec.sent, 3)
}

// A body that is not a manifest, or not the requested one, is not an answer.
func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	good := f.image(t, "linux", "amd64", nil)
	f.content["page"] = served{"text/html", []byte("<html>"), ""}
	f.content["swapped"] = served{good.MediaType, []byte(`{"schemaVersion":2}`), good.Digest.String()}
	f.content[digest.FromString("x").String()] = f.content[good.Digest.String()]
	f.content["ambiguous"] = served{good.MediaType, []byte(`{"schemaVersion":2,"manifests":[]}`), ""}
	f.content["huge"] = served{good.MediaType, make([]byte, maxManifest+1), ""}
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	for name, cause := range map[string]string{
		"page": "a login page, or not a registry", "swapped": "content has digest", digest.FromString("x").String(): "content has digest",
		"ambiguous": "ambiguous", "huge": "too large",
	} {
		_, _, err := r.Manifest(t.Context(), f.repository(), name)
		require.ErrorContains(t, err, cause, name)
		require.NotErrorIs(t, err, release.ErrNotFound, name)
		var noAnswer *release.SourceError
		require.ErrorAs(t, err, &noAnswer, name)
	}
}

func TestBlob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	desc := f.set("application/octet-stream", []byte("payload"))
	f.content[digest.FromString("other").String()] = served{"", []byte("payload"), ""}
	r, rec := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	body, err := r.Blob(t.Context(), f.repository(), desc)
	require.NoError(t, err)
	assert.Equal(t, "payload", string(body))
	assert.Len(t, rec.sent, 1)
	for cause, desc := range map[string]ocispec.Descriptor{
		"8 bytes":            {Digest: desc.Digest, Size: 8},
		"body: too large":    {Digest: desc.Digest, Size: 6},
		"content has digest": {Digest: digest.FromString("other"), Size: 7},
		"404":                {Digest: digest.FromString("gone"), Size: 7},
	} {
		_, err := r.Blob(t.Context(), f.repository(), desc)
		if cause == "8 bytes" {
			cause = "7 bytes, not 8"
		}
		require.ErrorContains(t, err, cause)
	}
	sent := len(rec.sent)
	for cause, desc := range map[string]ocispec.Descriptor{
		"too large: 1048577": {Digest: desc.Digest, Size: ocimanifest.MaxSignatureBlob + 1},
		"too large: -1":      {Digest: desc.Digest, Size: -1},
		`digest "x"`:         {Digest: "x", Size: 1},
	} {
		_, err := r.Blob(t.Context(), f.repository(), desc)
		require.ErrorContains(t, err, cause)
	}
	assert.Len(t, rec.sent, sent, "not even asked")
}

func referrersOf(t testing.TB, f *fake, of digest.Digest, list ...ocispec.Descriptor) {
	t.Helper()
	body := encode(t, map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": append([]ocispec.Descriptor{}, list...)})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[of.String()] = served{ocispec.MediaTypeImageIndex + "; charset=utf-8", body, ""}
}

func TestReferrers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	image := digest.FromString("image")
	want := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("signature"), Size: 1, ArtifactType: "a/b"}
	referrersOf(t, f, image, want)
	r, rec := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	list, err := r.Referrers(t.Context(), f.repository(), image)
	require.NoError(t, err)
	assert.Equal(t, []ocispec.Descriptor{want}, list)
	assert.Equal(t, []string{"GET /v2/app/referrers/" + image.String()}, f.log())
	_, err = r.Referrers(t.Context(), f.repository(), "x")
	require.ErrorContains(t, err, `digest "x"`)
	assert.Len(t, rec.sent, 1)
	referrersOf(t, f, image)
	_, err = r.Referrers(t.Context(), f.repository(), image)
	require.ErrorIs(t, err, release.ErrNotFound, "none is as good as 404")
}

// Answers of registries without the API, and invalid answers.
func TestReferrersOfRegistriesWithoutThem(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	image := digest.FromString("image")
	for _, status := range []int{400, 404, 405, 406, 501} {
		f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		_, err := r.Referrers(t.Context(), f.repository(), image)
		require.ErrorIs(t, err, release.ErrNotFound, status)
	}
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>"))
	})
	_, err := r.Referrers(t.Context(), f.repository(), image)
	require.ErrorIs(t, err, release.ErrNotFound)
	for _, body := range []string{"", "{}", `{"schemaVersion":2,"manifests":[{"digest":"x"}]}`, `{"schemaVersion":2,"layers":[]}`} {
		f.answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			_, _ = w.Write([]byte(body))
		})
		_, err := r.Referrers(t.Context(), f.repository(), image)
		require.ErrorContains(t, err, "referrers: manifest", body)
		require.NotErrorIs(t, err, release.ErrNotFound, body)
	}
	f.answer(nil)
	for _, status := range []int{403, 500, 503} {
		other := newFake(t)
		other.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		r, _ := newRegistry(t, certsD(t, other.host(), plainHTTP(other.host())))
		_, err := r.Referrers(t.Context(), other.repository(), image)
		require.Error(t, err)
		require.NotErrorIs(t, err, release.ErrNotFound, status)
	}
}

// A list in pages is read to its end, up to a limit.
func TestReferrersInPages(t *testing.T) {
	t.Parallel()
	for pages, cause := range map[int]string{3: "", maxReferrerPages: "", maxReferrerPages + 1: "more than 10 pages"} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			page, _ := strconv.Atoi(req.URL.Query().Get("page"))
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			if page+1 < pages {
				w.Header().Set("Link", `<`+req.URL.Path+`?page=`+strconv.Itoa(page+1)+`>; rel="next"`)
			}
			_, _ = w.Write(encode(t, map[string]any{"schemaVersion": 2, "manifests": []ocispec.Descriptor{{Digest: digest.FromString(strconv.Itoa(page)), Size: 1}}}))
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		list, err := r.Referrers(t.Context(), f.repository(), digest.FromString("image"))
		if cause != "" {
			require.ErrorContains(t, err, cause)
			continue
		}
		require.NoError(t, err)
		assert.Len(t, list, pages)
	}
	f := newFake(t)
	image := digest.FromString("image")
	for n, cause := range map[int]string{maxReferrers: "", maxReferrers + 1: "over 1000"} {
		referrersOf(t, f, image, descriptors(n)...)
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		list, err := r.Referrers(t.Context(), f.repository(), image)
		if cause != "" {
			require.ErrorContains(t, err, cause)
			continue
		}
		require.NoError(t, err)
		assert.Len(t, list, n)
	}
}

func descriptors(n int) []ocispec.Descriptor {
	list := make([]ocispec.Descriptor, n)
	for i := range list {
		list[i] = ocispec.Descriptor{Digest: digest.FromString(strconv.Itoa(i)), Size: 1}
	}
	return list
}

// It is unknown whether an unreachable host has a signature.
func TestReferrersOfAHostThatIsAway(t *testing.T) {
	t.Parallel()
	away, without := deadHost(t), newFake(t)
	image := digest.FromString("image")
	for first, last := range map[string]string{away: without.host(), without.host(): away} {
		r, _ := newRegistry(t, certsD(t, "registry.example.com", plainHTTP(last)+"[host.\"http://"+first+"\"]\n"))
		without.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) })
		_, err := r.Referrers(t.Context(), "registry.example.com/app", image)
		require.ErrorContains(t, err, "connection refused")
		require.NotErrorIs(t, err, release.ErrNotFound)
	}
}

// A mirror gets the namespace with each page's request.
func TestReferrersInPagesOfAMirror(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	image := digest.FromString("image")
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		if !req.URL.Query().Has("page") {
			w.Header().Set("Link", `<?page=2>; rel="next"`)
		}
		_, _ = w.Write(encode(t, map[string]any{"schemaVersion": 2, "manifests": descriptors(1)}))
	})
	r, _ := newRegistry(t, certsD(t, "registry.example.com", plainHTTP(f.host())))
	list, err := r.Referrers(t.Context(), "registry.example.com/app", image)
	require.NoError(t, err)
	assert.Len(t, list, 2)
	path := "GET /v2/app/referrers/" + image.String()
	assert.Equal(t, []string{path + "?ns=registry.example.com", path + "?ns=registry.example.com&page=2"}, f.log())
}

// If a mirror has no signatures, the registry is asked; a host that may not resolve is asked only for blobs.
func TestSignaturesFromHostsInTheirOrder(t *testing.T) {
	t.Parallel()
	upstream, mirror, store := newFake(t), newFake(t), newFake(t)
	image := digest.FromString("image")
	desc := upstream.image(t, "linux", "amd64", nil)
	upstream.tag("sha256-00.sig", desc)
	referrersOf(t, upstream, image, ocispec.Descriptor{Digest: desc.Digest, Size: 1})
	referrersOf(t, mirror, image)
	payload := store.set("application/octet-stream", []byte("payload"))
	r, _ := newRegistry(t, certsD(t, upstream.host(), plainHTTP(upstream.host())+
		"[host.\"http://"+store.host()+"\"]\ncapabilities = [\"pull\"]\n[host.\"http://"+mirror.host()+"\"]\ncapabilities = [\"pull\", \"resolve\"]\n"))
	_, _, err := r.Manifest(t.Context(), upstream.repository(), "sha256-00.sig")
	require.NoError(t, err)
	list, err := r.Referrers(t.Context(), upstream.repository(), image)
	require.NoError(t, err)
	assert.Len(t, list, 1)
	assert.Empty(t, store.log(), "a host that may not resolve has no say in tags and referrers")
	assert.Len(t, mirror.log(), 2)
	for _, line := range mirror.log() {
		assert.Contains(t, line, "ns="+strings.ReplaceAll(upstream.host(), ":", "%3A"))
	}
	_, err = r.Blob(t.Context(), upstream.repository(), payload)
	require.NoError(t, err)
	assert.Len(t, store.log(), 1)
	assert.Len(t, mirror.log(), 2)
}
