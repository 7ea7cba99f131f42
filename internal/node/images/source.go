// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
)

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
