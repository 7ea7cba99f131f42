// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
)

// source asks the registry for a digest and calls the answer by the name that
// the record shall have. Its errors say that they are the registry's. It hides
// that a resolver can be given options: pulls share the resolver, and each
// would write them while the others read.
type source struct {
	resolver  remotes.Resolver
	ref, name string
}

// Resolve asks for the digest, whatever it is called with.
func (s *source) Resolve(ctx context.Context, _ string) (string, ocispec.Descriptor, error) {
	_, desc, err := s.resolver.Resolve(ctx, s.ref)
	return s.name, desc, fromRegistry(err)
}

// Fetcher fetches from where the digest is.
func (s *source) Fetcher(ctx context.Context, _ string) (remotes.Fetcher, error) {
	f, err := s.resolver.Fetcher(ctx, s.ref)
	if err != nil {
		return nil, fromRegistry(err)
	}
	return remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		from, err := f.Fetch(ctx, desc)
		if err != nil {
			return nil, fromRegistry(err)
		}
		if seeker, ok := from.(io.ReadSeekCloser); ok {
			return seekableBody{body{from}, seeker}, nil
		}
		return body{from}, nil
	}), nil
}

// Pusher makes source a resolver; nothing here pushes.
func (s *source) Pusher(context.Context, string) (remotes.Pusher, error) {
	return nil, errdefs.ErrNotImplemented
}

// body marks the errors of reading: containerd's fetcher sends its request with
// the first Read.
type body struct{ io.ReadCloser }

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fromRegistry(err)
	}
	return n, err
}

// seekableBody keeps what a resumed pull needs: to begin in the middle.
type seekableBody struct {
	body
	io.Seeker
}

// fromRegistry marks an error as the registry's. Only here "not found" means
// that a digest has vanished; containerd says it of its own things too.
func fromRegistry(err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err) && !errors.Is(err, agent.ErrNotFound):
		err = fmt.Errorf("%w: %w", agent.ErrNotFound, err)
	}
	return &registryError{err}
}
