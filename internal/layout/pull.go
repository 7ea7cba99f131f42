// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Locate describes what a digest names in a repository. Annotations of the entry are
// not passed on: a registry has none.
func (l *Layout) Locate(_ context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	_, desc, err := l.find(repository, d)
	if err != nil {
		return ocispec.Descriptor{}, l.failed(repository, err)
	}
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, nil
}

// Fetch opens a blob in the first layout of the repository that has it.
func (l *Layout) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	err := fmt.Errorf("%s: %w", outside.Text(desc.Digest.String()), errBlob)
	for _, at := range l.homes[repository] {
		file, failed := l.blob(at, desc)
		if failed == nil {
			return &verified{
				ReadCloser: file, ctx: ctx, want: desc.Digest, digester: desc.Digest.Algorithm().Digester(),
				failed: func(err error) error { return l.failed(repository, err) },
			}, nil
		}
		if !errors.Is(failed, errBlob) {
			err = failed
		}
	}
	return nil, l.failed(repository, err)
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
