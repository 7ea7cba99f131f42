// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// breaking ends in an error after its text.
type breaking struct {
	*strings.Reader
	err error
}

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func (breaking) Close() error { return nil }

// from returns a source with one blob.
type from struct {
	fetch func(desc ocispec.Descriptor) io.ReadCloser
}

func of(body io.ReadCloser) from { return from{func(ocispec.Descriptor) io.ReadCloser { return body }} }

func (from) Locate(context.Context, string, digest.Digest) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, release.ErrNotFound
}

func (f from) Fetch(_ context.Context, _ string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	return f.fetch(desc), nil
}

// An error gives the position within the layer, and only the bytes of layers are counted.
func TestBody(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString(text), Size: 20}
	config := layer
	config.MediaType = ocispec.MediaTypeImageConfig
	at := "registry: " + layer.Digest.String() + ": after 10 of 20 bytes: "
	for name, is := range map[string]struct {
		desc  ocispec.Descriptor
		ends  error
		from  int64
		want  string
		bytes int
	}{
		"broken":                {layer, io.ErrClosedPipe, 0, at + "io: read/write on closed pipe", 10},
		"over too early":        {layer, io.EOF, 0, at + "unexpected EOF", 10},
		"from the middle":       {layer, io.EOF, 4, at + "unexpected EOF", 6},
		"a config, not counted": {config, io.EOF, 0, at + "unexpected EOF", 0},
	} {
		brought := 0
		s := &source{from: of(breaking{strings.NewReader(text), is.ends}), onFetched: func(n int) { brought += n }}
		fetcher, err := s.Fetcher(t.Context(), "")
		require.NoError(t, err)
		body, err := fetcher.Fetch(t.Context(), is.desc)
		require.NoError(t, err)
		_, err = body.(io.Seeker).Seek(is.from, io.SeekStart)
		require.NoError(t, err)
		_, err = io.ReadAll(body)
		require.EqualError(t, err, is.want, name)
		assert.Equal(t, is.bytes, brought, name)
	}
	whole := layer
	whole.Size = 10
	s := &source{from: of(io.NopCloser(struct{ io.Reader }{strings.NewReader(text)})), onFetched: func(int) {}}
	fetcher, err := s.Fetcher(t.Context(), "")
	require.NoError(t, err)
	body, err := fetcher.Fetch(t.Context(), whole)
	require.NoError(t, err)
	assert.NotImplements(t, (*io.Seeker)(nil), body, "it would be asked to seek")
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, text, string(data))
}

// A manifest may name another location for a layer. The node does not follow it.
func TestForeignLayersComeFromTheRegistry(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	var asked ocispec.Descriptor
	s := &source{onFetched: func(int) {}, from: from{func(desc ocispec.Descriptor) io.ReadCloser {
		asked = desc
		return io.NopCloser(strings.NewReader(text))
	}}}
	layer := ocispec.Descriptor{
		MediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
		Digest:    digest.FromString(text), Size: int64(len(text)), URLs: []string{"http://elsewhere.example/layer"},
	}
	fetcher, err := s.Fetcher(t.Context(), "")
	require.NoError(t, err)
	_, err = fetcher.Fetch(t.Context(), layer)
	require.NoError(t, err)
	assert.Empty(t, asked.URLs)
	assert.Equal(t, layer.Digest, asked.Digest)
	assert.NotEmpty(t, layer.URLs, "the caller's descriptor is the caller's")
}

// The record gets its name, and a missing digest is the registry's error.
func TestSourceIsAResolver(t *testing.T) {
	t.Parallel()
	s := &source{from: from{}, release: release.Release{Repository: "r.io/app", Long: "1", Digest: digest.FromString("x")}}
	name, _, err := s.Resolve(t.Context(), "whatever")
	assert.Equal(t, s.release.StagedName(), name)
	require.ErrorIs(t, err, release.ErrNotFound)
	_, isRegistry := errors.AsType[*registryError](err)
	assert.True(t, isRegistry)
	_, err = s.Pusher(t.Context(), "")
	require.ErrorIs(t, err, errdefs.ErrNotImplemented)
}
