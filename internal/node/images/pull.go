// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
