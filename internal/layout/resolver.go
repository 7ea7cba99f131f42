// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Resolver gives the layout the form of a registry, so that containerd pulls
// from it as it does from any: what is staged goes through the same checks.
func (l *Layout) Resolver() remotes.Resolver { return resolver{l} }

type resolver struct{ *Layout }

// Resolve finds repository@digest, or repository:tag, in the layout. Annotations
// of the entry are not passed on: a registry has none.
func (r resolver) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	repository, d, err := r.digestOf(ctx, ref)
	if err != nil {
		return "", ocispec.Descriptor{}, err
	}
	_, desc, err := r.find(repository, d)
	if errors.Is(err, agent.ErrNotFound) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return "", ocispec.Descriptor{}, r.failed(repository, err)
	}
	return ref, ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, nil
}

// digestOf reads a reference; of a tag it asks the layout.
func (r resolver) digestOf(ctx context.Context, text string) (repository string, d digest.Digest, err error) {
	ref, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", "", fmt.Errorf("layout: %q: %w", outside.Text(text), err)
	}
	switch named := ref.(type) {
	case reference.Digested:
		return ref.Name(), named.Digest(), nil
	case reference.Tagged:
		resolved, err := r.Layout.Resolve(ctx, agent.Reference{Repository: ref.Name(), Tag: named.Tag()})
		if errors.Is(err, agent.ErrNotFound) {
			err = fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
		}
		return ref.Name(), resolved.Digest, err
	}
	return "", "", fmt.Errorf("layout: %q: neither tag nor digest", outside.Text(text))
}

// Fetcher reads the blobs that the layouts of a repository hold.
func (r resolver) Fetcher(_ context.Context, ref string) (remotes.Fetcher, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("layout: %q: %w", outside.Text(ref), err)
	}
	return remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		return r.fetch(ctx, named.Name(), desc)
	}), nil
}

// fetch opens a blob in the first layout of the repository that has it.
func (r resolver) fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	err := fmt.Errorf("%s: %w", outside.Text(desc.Digest.String()), errBlob)
	for _, at := range r.homes[repository] {
		file, failed := r.blob(at, desc)
		if failed == nil {
			return &verified{
				ReadCloser: file, ctx: ctx, want: desc.Digest, digester: desc.Digest.Algorithm().Digester(),
				failed: func(err error) error { return r.failed(repository, err) },
			}, nil
		}
		if !errors.Is(failed, errBlob) {
			err = failed
		}
	}
	return nil, r.failed(repository, err)
}

// Pusher makes it a resolver; nothing here pushes.
func (r resolver) Pusher(context.Context, string) (remotes.Pusher, error) {
	return nil, errdefs.ErrNotImplemented
}

// verified is a blob whose last byte is only given out with the right digest.
// It cannot seek: a resumed pull reads from the start, so that all is hashed.
type verified struct {
	io.ReadCloser

	ctx      context.Context //nolint:containedctx // a read from a disk ends with the pull that wants it
	want     digest.Digest
	digester digest.Digester
	failed   func(error) error
}

func (v *verified) Read(p []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := v.ReadCloser.Read(p)
	v.digester.Hash().Write(p[:n])
	switch {
	case errors.Is(err, io.EOF):
		if wrong := verify(v.want, v.digester.Digest()); wrong != nil {
			return n, v.failed(wrong)
		}
	case err != nil:
		return n, v.failed(fmt.Errorf("%s: %w", v.want, atomicfile.Plain(err)))
	}
	return n, err
}
