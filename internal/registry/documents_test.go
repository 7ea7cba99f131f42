// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// A pull after a description requests only layers. Real registry.
func TestPullRequestsNoDocumentAgain(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, host+"/app:1", img)
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	found, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
	require.NoError(t, err)
	_, err = r.Describe(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, 3, "as many as containerd's own pull sends before the layers")

	read := func(desc ocispec.Descriptor) []byte {
		t.Helper()
		body, err := r.Fetch(t.Context(), host+"/app", desc)
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		assert.Equal(t, desc.Digest, digest.FromBytes(text))
		return text
	}
	desc, err := r.Locate(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	doc, err := ocimanifest.Parse(desc.MediaType, read(desc))
	require.NoError(t, err)
	config, err := doc.ImageConfig()
	require.NoError(t, err)
	read(config)
	assert.Len(t, rec.sent, 3)
	layer, err := img.Layers()
	require.NoError(t, err)
	name, err := layer[0].Digest()
	require.NoError(t, err)
	size, err := layer[0].Size()
	require.NoError(t, err)
	read(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.Digest(name.String()), Size: size})
	assert.Len(t, rec.sent, 4)

	read(desc)
	assert.Len(t, rec.sent, 5, "a pull takes a document out")
	_, err = r.Locate(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, 6)
	assert.Equal(t, "HEAD", rec.sent[5].Method, "the type is the one of HEAD, as in containerd")
}

// A long tag is resolved with the content that a description needs next. Content of another digest is not kept, whatever
// the host says. Real registry.
func TestALongTagBringsTheManifest(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, host+"/app:1", img)
	push(t, host+"/app:1-build1", img)
	push(t, host+"/app:1-build2", testImage(t, "linux/arm64"))
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	ref := func(tag string) release.Reference { return release.Reference{Repository: host + "/app", Tag: tag} }
	found, err := r.Resolve(t.Context(), ref("1"))
	require.NoError(t, err)
	for tag, same := range map[string]bool{"1-build1": true, "1-build2": false} {
		long, err := r.ResolveTo(t.Context(), ref(tag), found.Digest)
		require.NoError(t, err)
		assert.Equal(t, same, long.Digest == found.Digest, tag)
		_, kept := r.documents.all[release.Pin{Repository: host + "/app", Digest: long.Digest}]
		assert.Equal(t, same, kept, tag)
	}
	_, err = r.ResolveTo(t.Context(), ref("none"), found.Digest)
	require.ErrorIs(t, err, release.ErrNotFound)
	_, err = r.ResolveTo(t.Context(), ref("1-build1"), "sha256:short")
	require.ErrorIs(t, err, digest.ErrDigestInvalidLength)
	before := len(rec.sent)
	_, err = r.Describe(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, before+1, "the config")
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d documents
		describe := func(n, size int) ocispec.Descriptor {
			return ocispec.Descriptor{Digest: digest.FromString(strconv.Itoa(n)), Size: int64(size)}
		}
		has := func(n int) bool {
			_, is := d.all[release.Pin{Repository: "r", Digest: describe(n, 0).Digest}]
			return is
		}
		const half = maxDocuments/2 - documentCost
		keep := func(n, size int) { d.keep("r", describe(n, size).Digest, make([]byte, size)) }
		keep(1, half)
		keep(1, half)
		keep(2, half)
		assert.True(t, has(1) && has(2))
		keep(3, 1)
		assert.False(t, has(1), "the oldest one")
		assert.True(t, has(2) && has(3))
		assert.LessOrEqual(t, d.size, maxDocuments)
		_, is := d.take("other", describe(3, 1))
		assert.False(t, is, "another repository may need another login")
		_, is = d.take("r", describe(3, 2))
		assert.False(t, is, "another size")
		_, is = d.take("r", describe(3, 1))
		assert.True(t, is)
		assert.False(t, has(3))
		for n := range 2 * maxDocuments / documentCost {
			d.locate("r", manifest{desc: ocispec.Descriptor{
				MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(strconv.Itoa(n)), Size: 1,
			}})
		}
		assert.LessOrEqual(t, d.size, maxDocuments, "many tags")
		keep(2, 1)
		<-time.After(documentAge)
		synctest.Wait()
		assert.False(t, has(2), "the pull is delayed")
		assert.Zero(t, d.size)
	})
}
