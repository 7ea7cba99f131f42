// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
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

// list returns a JSON list of empty objects.
func list(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }

// Every document that containerd's client decodes is counted first: each kind, at its limit and above it, stored in any
// way.
func TestDocumentsAreCountedBeforeTheyAreDecoded(t *testing.T) {
	t.Parallel()
	disk, err := local.NewStore(t.TempDir())
	require.NoError(t, err)
	store := &documents{disk}
	embedded := func(n int) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{' '}, n))
	}
	const most, index, manifest = ocimanifest.MaxEntries, ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest
	for title, c := range map[string]struct {
		mediaType, body, want string
	}{
		"index":                {index, `{"manifests":` + list(most) + `}`, ""},
		"index, one more":      {index, `{"manifests":` + list(most+1) + `}`, "too many entries of a list: over 20000"},
		"manifest":             {manifest, `{"layers":` + list(most) + `}`, ""},
		"manifest, one more":   {manifest, `{"layers":` + list(most+1) + `}`, "too many entries"},
		"config":               {ocispec.MediaTypeImageConfig, `{"history":` + list(most) + `}`, ""},
		"config, one more":     {ocispec.MediaTypeImageConfig, `{"history":` + list(most+1) + `}`, "too many entries"},
		"docker's kinds":       {images.MediaTypeDockerSchema2Config, `{"history":` + list(most+1) + `}`, "too many entries"},
		"embedded":             {index, `{"manifests":[{"data":"` + embedded(maxEmbedded) + `"}]}`, ""},
		"embedded, one more":   {index, `{"manifests":[{"d\u0061ta":"` + embedded(maxEmbedded+1) + `"}]}`, "65537 bytes embedded"},
		"an embedded config":   {manifest, `{"config":{"Data":"` + embedded(maxEmbedded+1) + `"}}`, "65537 bytes embedded"},
		"too long":             {index, `{}` + strings.Repeat(" ", maxDocument-1), "8388609 bytes, at most 8388608"},
		"a layer is its bytes": {ocispec.MediaTypeImageLayerGzip, list(most + 1), ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			desc := ocispec.Descriptor{MediaType: c.mediaType, Digest: digest.FromString(c.body), Size: int64(len(c.body))}
			require.NoError(t, content.WriteBlob(t.Context(), disk, title, strings.NewReader(c.body), desc))
			got, err := content.ReadBlob(t.Context(), store, desc)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.body, string(got))
		})
	}
}

// The daemon's client uses it as well.
func TestEveryClientCountsDocuments(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	s, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	c, err := s.open(t.Context())
	require.NoError(t, err)
	defer c.close()
	assert.IsType(t, &documents{}, c.client.ContentStore())
}

func TestLayersAreBounded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{ocimanifest.MaxLayers, ocimanifest.MaxLayers + 1, 10_000} {
		handler := (&guard{session: sessionOn(t, &fakeRecords{}), onManifest: func([]ocispec.Descriptor) {}}).wrap(images.HandlerFunc(
			func(_ context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
				if n > ocimanifest.MaxLayers {
					assert.NotEqual(t, ocispec.MediaTypeImageConfig, desc.MediaType, "was fetched")
				}
				blobs := []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}}
				for range n {
					blobs = append(blobs, blob("layer", 1))
				}
				return blobs, nil
			}))
		_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Size: 1})
		want := fmt.Sprintf("too many layers: %d, at most 500", n)
		if n <= ocimanifest.MaxLayers {
			want = "config" // the next check
		}
		assert.ErrorContains(t, err, want)
	}
}

// A manifest among the blobs of another one would be fetched and decoded as well, and without being counted if it is
// embedded.
func TestEmbeddedManifestsAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{
		ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
		images.MediaTypeDockerSchema2Manifest, images.MediaTypeDockerSchema2ManifestList,
	} {
		for _, blobs := range [][]ocispec.Descriptor{
			{{MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}, blob("layer", 1), {MediaType: kind}},
			{{MediaType: kind}, {MediaType: ocispec.MediaTypeImageConfig, Size: maxDocument + 1}},
		} {
			handler := (&guard{session: sessionOn(t, &fakeRecords{}), onManifest: func([]ocispec.Descriptor) {}}).wrap(images.HandlerFunc(
				func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) { return blobs, nil }))
			_, err := handler.Handle(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Size: 1})
			assert.ErrorContains(t, err, "blob of media type \""+kind+"\"")
		}
	}
}

func TestUnpackedLayer(t *testing.T) {
	t.Parallel()
	for mediaType, want := range map[string]int64{
		ocispec.MediaTypeImageLayer:                       100,
		ocispec.MediaTypeImageLayerGzip:                   300,
		ocispec.MediaTypeImageLayerZstd:                   400,
		images.MediaTypeDockerSchema2LayerGzip:            300,
		images.MediaTypeDockerSchema2Layer:                400, // may still be compressed
		"application/vnd.oci.image.layer.v1.tar+squeezed": 100,
		"application/unknown":                             400,
	} {
		assert.Equal(t, want, unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: 100}), mediaType)
		most := unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: math.MaxInt64})
		assert.InDelta(t, maxNeeded, most, worstRatio, "%s: larger than any disk", mediaType)
		assert.Zero(t, unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: -1}), mediaType)
	}
}

func TestUnpackedSize(t *testing.T) {
	t.Parallel()
	layers := []ocispec.Descriptor{
		{MediaType: ocispec.MediaTypeImageConfig, Size: 7}, blob("a", 100), blob("b", 1000), blob("a", 100),
	}
	chain := []digest.Digest{"one", "two", "three"}
	for name, is := range map[string]struct {
		there []string
		want  int64
	}{
		"all missing, one of them twice": {nil, 3600},
		"the lowest is there":            {[]string{"one"}, 3300},
		"all there":                      {[]string{"one", "two", "three"}, 0},
	} {
		s := contents{snapshots: map[string]bool{}}
		for _, name := range is.there {
			s.snapshots[name] = true
		}
		assert.Equal(t, is.want, unpackedSize(t.Context(), layers, chain, s), name)
	}
	all := contents{snapshots: map[string]bool{"one": true}}
	assert.EqualValues(t, 3300, unpackedSize(t.Context(), layers, chain[:1], all), "a config that knows less than the manifest")
}

// For any manifest, some needs can be added without overflow.
func TestSpaceNeededProperties(t *testing.T) {
	t.Parallel()
	c, store, _ := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
	target := heldImage(t, store, c.platform)
	manifest, err := images.Manifest(t.Context(), store, target, c.matcher)
	require.NoError(t, err)
	there := append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...)
	none, err := c.spaceNeeded(t.Context(), there)
	require.NoError(t, err)
	assert.Equal(t, policy.SpaceNeeded{}, none, "all is there")
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		blobs := there
		for _, size := range rapid.SliceOf(rapid.Int64()).Draw(t, "sizes") {
			blobs = append(blobs, blob("missing", size))
		}
		n, err := c.spaceNeeded(ctx, blobs)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, n.Compressed, int64(0))
		assert.GreaterOrEqual(t, n.Unpacked, int64(0))
		assert.Positive(t, 10*(n.Compressed+n.Unpacked)+1)
	})
}

// The space of a resumed pull was already granted.
func TestSpaceIsCheckedOnce(t *testing.T) {
	t.Parallel()
	c, store, _ := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
	manifest, err := images.Manifest(t.Context(), store, heldImage(t, store, c.platform), c.matcher)
	require.NoError(t, err)
	blobs := append([]ocispec.Descriptor{manifest.Config}, append(manifest.Layers, blob("missing", 100))...)
	asked, answer := 0, errors.New("no")
	j := &job{options: node.StageOptions{CheckSpace: func(_ context.Context, n policy.SpaceNeeded) error {
		asked++
		assert.Equal(t, policy.SpaceNeeded{Compressed: 100, Unpacked: 300}, n)
		return answer
	}}}
	g := &guard{session: c, job: j}
	err = g.checkSpace(t.Context(), blobs)
	require.ErrorIs(t, err, answer)
	require.EqualError(t, err, "no")
	assert.False(t, j.keepsLease(err), "nothing to keep")
	answer = nil
	require.NoError(t, g.checkSpace(t.Context(), blobs))
	require.NoError(t, g.checkSpace(t.Context(), blobs))
	assert.Equal(t, 2, asked)
	require.NoError(t, (&guard{session: c, job: &job{}}).checkSpace(t.Context(), blobs), "no CheckSpace")
}

// zeros is a registry that sends as fast as the client reads.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
func (zeros) Close() error               { return nil }

// through reads size bytes of a layer in megabytes, as containerd's client does.
func through(ctx context.Context, t *throttle, size int64) error {
	b := &body{
		ReadCloser: zeros{}, ctx: ctx, source: &source{throttle: t, onFetched: func(int) {}},
		desc: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Size: size},
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(b, size), make([]byte, 1<<20))
	return err
}

// All pulls together keep to the limit, after the first burst, and use all of it.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{10_000, 1 << 20, 100 << 20} {
		synctest.Test(t, func(t *testing.T) {
			shared := newThrottle(limit)
			start := time.Now()
			var pulls sync.WaitGroup
			for range 3 {
				pulls.Go(func() { assert.NoError(t, through(t.Context(), shared, 10*limit)) })
			}
			pulls.Wait()
			assert.InDelta(t, 30, time.Since(start).Seconds(), 0.5, "seconds at %d", limit)
		})
	}
}

func TestNoBandwidth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, through(t.Context(), newThrottle(0), 1<<30))
		assert.Zero(t, time.Since(start))
	})
}

// A read that waits for the limit ends with its context.
func TestBandwidthWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		require.ErrorIs(t, through(ctx, newThrottle(minBurst), 1<<20), context.Canceled)
		assert.Equal(t, time.Second, time.Since(start))
	})
}
