// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// Locate describes a digest in a repository, without the annotations of its entry: a
// registry has none.
func (l *Layout) Locate(_ context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	_, desc, err := l.find(repository, d)
	if err != nil {
		return ocispec.Descriptor{}, l.failed(repository, err)
	}
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, nil
}

// Fetch opens a blob. Its reader verifies the digest at the end.
func (l *Layout) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	file, err := firstOf(l, repository, desc.Digest, func(at home) (io.ReadCloser, error) { return l.blob(at, desc) })
	if err != nil {
		return nil, err
	}
	return &verified{
		ReadCloser: file, ctx: ctx, want: desc.Digest, digester: desc.Digest.Algorithm().Digester(),
		failed: func(err error) error { return l.failed(repository, err) },
	}, nil
}

// verified is a blob whose reader returns an error at the end unless the digest is right. It cannot seek: a resumed
// pull reads from the start, to compute the digest.
type verified struct {
	io.ReadCloser

	ctx      context.Context //nolint:containedctx // the pull's
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
		return n, v.failed(fmt.Errorf("%s: %w", v.want, nodefile.Plain(err)))
	}
	return n, err
}
