// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// of is a resolver with one blob.
type of struct {
	remotes.Resolver
	body io.ReadCloser
}

func (o of) Fetcher(context.Context, string) (remotes.Fetcher, error) {
	return remotes.FetcherFunc(func(context.Context, ocispec.Descriptor) (io.ReadCloser, error) { return o.body, nil }), nil
}

// Where a body ends is said, counted from the beginning of the layer, and its
// bytes count only as those of a layer.
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
		s := &source{resolver: of{body: breaking{strings.NewReader(text), is.ends}}, brought: func(n int) { brought += n }}
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
	s := &source{resolver: of{body: io.NopCloser(struct{ io.Reader }{strings.NewReader(text)})}, brought: func(int) {}}
	fetcher, err := s.Fetcher(t.Context(), "")
	require.NoError(t, err)
	body, err := fetcher.Fetch(t.Context(), whole)
	require.NoError(t, err)
	assert.NotImplements(t, (*io.Seeker)(nil), body, "it would be asked to seek")
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, text, string(data))
}

// A manifest may say that a layer lies elsewhere. Whoever wrote it does not send a
// node of ours there.
func TestForeignLayersAreAskedOfTheRegistry(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	var asked ocispec.Descriptor
	s := &source{brought: func(int) {}, resolver: asking(func(desc ocispec.Descriptor) io.ReadCloser {
		asked = desc
		return io.NopCloser(strings.NewReader(text))
	})}
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

// asking is a resolver that tells what is fetched.
type asking func(desc ocispec.Descriptor) io.ReadCloser

func (asking) Resolve(context.Context, string) (string, ocispec.Descriptor, error) {
	return "", ocispec.Descriptor{}, nil
}

func (a asking) Fetcher(context.Context, string) (remotes.Fetcher, error) {
	return remotes.FetcherFunc(func(_ context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		return a(desc), nil
	}), nil
}

func (asking) Pusher(context.Context, string) (remotes.Pusher, error) { return nil, nil }
