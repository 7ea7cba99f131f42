// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// maxDocument limits an index, manifest or config, which are read into memory: twice what registries must accept (OCI
// distribution spec, 4 MiB).
const maxDocument = 8 << 20

// pull fetches and unpacks a release and writes its first record.
func (c *session) pull(ctx context.Context, j *job) (ocispec.Descriptor, error) {
	r := j.release
	snapshotter, err := c.snapshotterName(ctx)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	w := newWatcher(c.client.ContentStore(), r.StagedName(), j.report)
	stop := w.start(ctx)
	defer stop()
	image, err := c.client.Pull(ctx, digestName(r),
		containerd.WithResolver(&source{
			from: c.source, release: r, throttle: c.throttle, onFetched: j.addFetched,
		}),
		containerd.WithPlatformMatcher(c.matcher),
		containerd.WithPullLabels(stagedLabels(r)),
		containerd.WithImageHandlerWrapper((&guard{session: c, job: j, onManifest: w.expect}).wrap),
		containerd.WithPullUnpack,
		containerd.WithPullSnapshotter(snapshotter),
		containerd.WithUnpackOpts([]containerd.UnpackOpt{
			// A snapshot may exist without its blob (CRI's discard_unpacked_layers); without this option, the pull
			// would never be complete.
			containerd.WithUnpackFetchAllContent(),
			containerd.WithUnpackDuplicationSuppressor(c.locks),
			// With a limiter, containerd 2.2 and later unpack layers in parallel if the snapshotter has the capability
			// rebase.
			containerd.WithUnpackLimiter(c.unpacks),
		}))
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if got := image.Target().Digest; got != r.Digest {
		return ocispec.Descriptor{}, fmt.Errorf("registry: sent %s", got)
	}
	return image.Target(), nil
}

// guard wraps the handler of a pull, which containerd calls for each document and layer.
type guard struct {
	*session
	job        *job
	onManifest func(blobs []ocispec.Descriptor) // called with the blobs of the platform's manifest
}

func (g *guard) wrap(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if images.IsLayerType(desc.MediaType) {
			return g.layer(ctx, next, desc)
		}
		if desc.Size > maxDocument {
			return nil, fmt.Errorf("%s %s: %d bytes, at most %d", desc.MediaType, desc.Digest, desc.Size, maxDocument)
		}
		children, err := next.Handle(ctx, desc)
		switch {
		case err != nil && images.IsIndexType(desc.MediaType):
			return nil, g.indexError(ctx, desc, err)
		case err != nil:
			return nil, err
		case images.IsManifestType(desc.MediaType):
			if err := ocimanifest.CheckBlobs(children); err != nil {
				return nil, fmt.Errorf("manifest %s: %w", desc.Digest, err)
			}
			g.onManifest(children)
			if err := g.checkPlatform(ctx, next, children); err != nil {
				return nil, err
			}
			return children, g.checkSpace(ctx, children)
		}
		return children, nil
	})
}

// layer fetches a layer when a slot is free, because containerd's client has no limit. It skips a layer that is stored
// and referenced by the manifest's labels: containerd's fetcher would first open a transfer and write a label, with two
// syncs of its database.
func (g *guard) layer(ctx context.Context, next images.Handler, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if info, err := g.client.ContentStore().Info(ctx, desc.Digest); err == nil && info.Size == desc.Size {
		return nil, nil
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
		return next.Handle(ctx, desc)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// indexError returns release.ErrPlatform for an index without the node's platform: containerd returns "not found", as
// for an index that does not exist.
func (g *guard) indexError(ctx context.Context, index ocispec.Descriptor, err error) error {
	if !errdefs.IsNotFound(err) || errors.Is(err, release.ErrNotFound) {
		return err
	}
	if _, absent := g.client.ContentStore().Info(ctx, index.Digest); absent != nil {
		return err
	}
	return fmt.Errorf("index: %w: want %s", release.ErrPlatform, platforms.Format(g.platform))
}

// checkPlatform fetches the config before any layer and compares its platform:
// containerd does not check a manifest without an index.
func (g *guard) checkPlatform(ctx context.Context, next images.Handler, children []ocispec.Descriptor) error {
	for _, config := range children {
		if !images.IsConfigType(config.MediaType) {
			continue
		}
		if config.Size > maxDocument {
			return fmt.Errorf("config %s: %d bytes, at most %d", config.Digest, config.Size, maxDocument)
		}
		if _, err := next.Handle(ctx, config); err != nil {
			return err
		}
		platform, err := images.ConfigPlatform(ctx, g.client.ContentStore(), config)
		if err != nil {
			return fmt.Errorf("config %s: %w", config.Digest, err)
		}
		if !g.matcher.Match(platform) {
			return fmt.Errorf("%w: %s, want %s", release.ErrPlatform,
				platforms.Format(platform), platforms.Format(g.platform))
		}
		return nil
	}
	return fmt.Errorf("manifest: no image config: %w", release.ErrPlatform)
}

// maxEmbedded limits the bytes of a document embedded in the descriptor of another one, which containerd does not read
// from the content store.
const maxEmbedded = 64 << 10

// documents wraps the content store for containerd's client code, which decodes whole indexes, manifests and configs:
// it checks their limits first.
type documents struct{ content.Store }

// ReaderAt opens a blob. It reads a document into memory.
func (d *documents) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	at, err := d.Store.ReaderAt(ctx, desc)
	if err != nil || !isDocument(desc.MediaType) {
		return at, err
	}
	defer at.Close()
	body, err := readDocument(at, desc.MediaType)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", desc.MediaType, desc.Digest, err)
	}
	return openDocument{bytes.NewReader(body)}, nil
}

// openDocument is a document in memory.
type openDocument struct{ *bytes.Reader }

// Close does nothing.
func (openDocument) Close() error { return nil }

func isDocument(mediaType string) bool {
	return images.IsIndexType(mediaType) || images.IsManifestType(mediaType) || images.IsConfigType(mediaType)
}

// readDocument reads a document and checks its size and limits.
func readDocument(at content.ReaderAt, mediaType string) ([]byte, error) {
	if at.Size() > maxDocument {
		return nil, fmt.Errorf("%d bytes, at most %d", at.Size(), maxDocument)
	}
	body := make([]byte, at.Size())
	if n, err := at.ReadAt(body, 0); n < len(body) {
		return nil, err
	}
	if err := ocimanifest.CheckBounds(body); err != nil {
		return nil, err
	}
	if images.IsConfigType(mediaType) {
		return body, nil
	}
	return body, checkEmbedded(body)
}

// checkEmbedded rejects a manifest with large embedded parts, which readDocument does not see.
func checkEmbedded(manifest []byte) error {
	type part struct {
		Data []byte `json:"data"`
	}
	var parts struct {
		Config    part   `json:"config"`
		Manifests []part `json:"manifests"`
	}
	if err := json.Unmarshal(manifest, &parts); err != nil {
		return err
	}
	for _, p := range append(parts.Manifests, parts.Config) {
		if len(p.Data) > maxEmbedded {
			return fmt.Errorf("%d bytes embedded in a descriptor, at most %d", len(p.Data), maxEmbedded)
		}
	}
	return nil
}

// Source fetches content by digest. For an unknown digest it returns release.ErrNotFound.
type Source interface {
	// Locate returns media type and size of a manifest or index.
	Locate(ctx context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error)
	// Fetch opens a manifest or blob. If the reader is an io.Seeker, a resumed pull
	// continues in the middle.
	Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error)
}

// source adapts a Source to containerd's resolver, for one release. Each pull has its
// own, because containerd's client writes options into some resolvers.
type source struct {
	from      Source
	release   release.Release
	throttle  *throttle
	onFetched func(n int) // called with the bytes of layers
}

// Resolve describes the release's digest, under the name that its record gets. It ignores
// the given reference.
func (s *source) Resolve(ctx context.Context, _ string) (string, ocispec.Descriptor, error) {
	desc, err := s.from.Locate(ctx, s.release.Repository, s.release.Digest)
	return s.release.StagedName(), desc, fromRegistry(err)
}

// Fetcher fetches only from the Source. containerd would first ask the URLs of a descriptor (foreign layers), with a
// client without the agent's limits, budgets and proxies.
func (s *source) Fetcher(context.Context, string) (remotes.Fetcher, error) {
	return remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		desc.URLs = nil
		from, err := s.from.Fetch(ctx, s.release.Repository, desc)
		if err != nil {
			return nil, fromRegistry(err)
		}
		b := &body{ReadCloser: from, source: s, ctx: ctx, desc: desc}
		if seeker, ok := from.(io.Seeker); ok {
			return &seekableBody{b, seeker}, nil
		}
		return b, nil
	}), nil
}

// Pusher is not implemented.
func (s *source) Pusher(context.Context, string) (remotes.Pusher, error) {
	return nil, errdefs.ErrNotImplemented
}

// body reads a blob within the bandwidth. The Source retries a connection that ends too
// early; body does not.
type body struct {
	io.ReadCloser
	source *source
	ctx    context.Context //nolint:containedctx // of the one transfer that reads it
	desc   ocispec.Descriptor
	at     int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(b.source.throttle.clip(p))
	b.at += int64(n)
	if images.IsLayerType(b.desc.MediaType) {
		b.source.onFetched(n)
	}
	switch {
	case errors.Is(err, io.EOF) && b.at < b.desc.Size:
		err = io.ErrUnexpectedEOF
	case err == nil:
		return n, b.source.throttle.wait(b.ctx, n)
	case errors.Is(err, io.EOF):
		return n, err
	}
	return n, fromRegistry(fmt.Errorf("%s: after %d of %d bytes: %w", b.desc.Digest, b.at, b.desc.Size, err))
}

// seekableBody can resume in the middle.
type seekableBody struct {
	*body
	seeker io.Seeker
}

func (b *seekableBody) Seek(offset int64, whence int) (int64, error) {
	at, err := b.seeker.Seek(offset, whence)
	if err == nil {
		b.at = at
	}
	return at, err
}

// fromRegistry marks an error as the registry's.
func fromRegistry(err error) error {
	if err == nil {
		return nil
	}
	return &registryError{err}
}

// unpackedRatio estimates the size of an unpacked layer, by compression. Base images and Go programs have 2 to 2.8 with
// gzip; files are rounded up to blocks, and an underestimate fills the disk. zstd compresses a fifth better than gzip.
var unpackedRatio = map[string]int64{"": 1, "gzip": 3, "zstd": 4}

// worstRatio is for an unknown compression.
const worstRatio = 4

// maxNeeded exceeds any disk: sums of sizes from an untrusted manifest must not overflow.
const maxNeeded = 1 << 58

// checkSpace calls CheckSpace with the size of the pull, until it succeeds once in this staging.
func (g *guard) checkSpace(ctx context.Context, blobs []ocispec.Descriptor) error {
	if g.job.options.CheckSpace == nil || g.job.spaceGranted {
		return nil
	}
	needed, err := g.spaceNeeded(ctx, blobs)
	if err != nil {
		return err
	}
	if err := g.job.options.CheckSpace(ctx, needed); err != nil {
		return &spaceError{err}
	}
	g.job.spaceGranted = true
	return nil
}

// spaceError is an error of CheckSpace.
type spaceError struct{ error }

func (e *spaceError) Unwrap() error { return e.error }

// spaceNeeded estimates the size of the missing part of a manifest's config and layers.
func (c *session) spaceNeeded(ctx context.Context, blobs []ocispec.Descriptor) (policy.SpaceNeeded, error) {
	stored, err := c.listContent(ctx)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	chain, err := c.chainIDs(ctx, blobs)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	partial, err := partialBlobs(ctx, c.client.ContentStore())
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	have, total := sumBlobs(blobs, func(blob ocispec.Descriptor) int64 {
		if stored.blobs[blob.Digest] {
			return blob.Size
		}
		return partial[remotes.MakeRefKey(ctx, blob)]
	})
	return policy.SpaceNeeded{
		Compressed: min(total-have, maxNeeded),
		Unpacked:   min(unpackedSize(ctx, blobs, chain, stored), maxNeeded),
	}, nil
}

// partialBlobs returns the stored bytes of partial blobs, by containerd's name for the transfer.
func partialBlobs(ctx context.Context, store ingests) (map[string]int64, error) {
	statuses, err := store.ListStatuses(ctx)
	if err != nil {
		return nil, fmt.Errorf("list content: %w", err)
	}
	partial := make(map[string]int64, len(statuses))
	for _, status := range statuses {
		partial[status.Ref] = status.Offset
	}
	return partial, nil
}

// chainIDs returns the names of the image's snapshots, stored or not.
func (c *session) chainIDs(ctx context.Context, blobs []ocispec.Descriptor) ([]digest.Digest, error) {
	for _, blob := range blobs {
		if !images.IsConfigType(blob.MediaType) {
			continue
		}
		layers, err := images.RootFS(ctx, c.client.ContentStore(), blob)
		if err != nil {
			return nil, fmt.Errorf("config %s: %w", blob.Digest, err)
		}
		return identity.ChainIDs(layers), nil
	}
	return nil, nil
}

// unpackedSize estimates the layers that have no snapshot. A layer that is listed twice
// is unpacked twice.
func unpackedSize(ctx context.Context, blobs []ocispec.Descriptor, chain []digest.Digest, stored contents) int64 {
	var sum int64
	n := 0
	for _, blob := range blobs {
		if !images.IsLayerType(blob.MediaType) {
			continue
		}
		if n >= len(chain) || !stored.snapshots[chain[n].String()] {
			sum = add(sum, unpackedLayer(ctx, blob))
		}
		n++
	}
	return sum
}

func unpackedLayer(ctx context.Context, layer ocispec.Descriptor) int64 {
	ratio := int64(worstRatio)
	if compression, err := images.DiffCompression(ctx, layer.MediaType); err == nil {
		if known, ok := unpackedRatio[compression]; ok {
			ratio = known
		}
	}
	return min(max(layer.Size, 0), maxNeeded/ratio) * ratio
}
