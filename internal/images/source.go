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

// Source brings what digests name in a repository. A digest that it does not have is
// release.ErrNotFound.
type Source interface {
	// Locate describes a manifest or index: its media type and size.
	Locate(ctx context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error)
	// Fetch opens a manifest or blob. Where the reader is an io.Seeker, a pull that goes
	// on begins where it was.
	Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error)
}

// source is a Source as containerd's client wants it, for one release: it gives the
// answer the name that the record shall have. Its errors say that they are the
// registry's. Each pull has its own, because containerd's client writes options into
// some resolvers.
type source struct {
	from     Source
	release  release.Release
	throttle *throttle
	brought  func(n int) // bytes of layers
}

// Resolve asks for the digest, whatever it is called with.
func (s *source) Resolve(ctx context.Context, _ string) (string, ocispec.Descriptor, error) {
	desc, err := s.from.Locate(ctx, s.release.Repository, s.release.Digest)
	return s.release.StagedName(), desc, fromRegistry(err)
}

// Fetcher fetches from where the digest is, and from nowhere else: containerd asks
// the URLs of a descriptor first (foreign layers), with a client that knows no
// limit, no budget and no proxy of ours, wherever they lead.
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

// Pusher makes source a resolver; nothing here pushes.
func (s *source) Pusher(context.Context, string) (remotes.Pusher, error) {
	return nil, errdefs.ErrNotImplemented
}

// body is what comes of a blob. The registry sends its request with the first
// Read, and asks for the rest, from where it is, when a connection ends too
// early; nothing here asks again.
type body struct {
	io.ReadCloser
	source *source
	ctx    context.Context //nolint:containedctx // of the one transfer that reads it
	desc   ocispec.Descriptor
	at     int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(b.source.throttle.most(p))
	b.at += int64(n)
	if images.IsLayerType(b.desc.MediaType) {
		b.source.brought(n)
	}
	switch {
	case errors.Is(err, io.EOF) && b.at < b.desc.Size:
		err = io.ErrUnexpectedEOF
	case err == nil:
		return n, b.source.throttle.pay(b.ctx, n)
	case errors.Is(err, io.EOF):
		return n, err
	}
	return n, fromRegistry(fmt.Errorf("%s: after %d of %d bytes: %w", b.desc.Digest, b.at, b.desc.Size, err))
}

// seekableBody keeps what a resumed pull needs: to begin in the middle.
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
