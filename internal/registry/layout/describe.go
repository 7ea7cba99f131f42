// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Describe reads the manifest (of an index, the platform's one) and the image config of a
// digest.
func (l *Layout) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if err := ctx.Err(); err != nil {
		return release.Build{}, l.failed(repository, err)
	}
	release.Asking(ctx)
	at, desc, err := l.find(repository, d)
	if err != nil {
		return release.Build{}, l.failed(repository, err)
	}
	build, err := l.describe(at, desc)
	switch {
	case errors.Is(err, release.ErrPlatform):
		return release.Build{}, fmt.Errorf("layout: %s@%s: %w", repository, d, err) // a valid answer
	case err != nil:
		return release.Build{}, l.failed(repository, err)
	}
	return build, nil
}

// find returns an entry of a repository, and its layout.
func (l *Layout) find(repository string, d digest.Digest) (home, ocispec.Descriptor, error) {
	for _, at := range l.homes[repository] {
		if desc, ok := at.entries[d]; ok {
			return at, desc, nil
		}
	}
	return home{}, ocispec.Descriptor{}, fmt.Errorf("%s: %w", outside.Text(d.String()), release.ErrNotFound)
}

func (l *Layout) describe(at home, desc ocispec.Descriptor) (release.Build, error) {
	from := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) { return l.manifest(at, desc) },
		Config: func(desc ocispec.Descriptor) ([]byte, error) {
			data, err := l.document(at, desc, ocimanifest.MaxConfig)
			if err != nil {
				return nil, fmt.Errorf("config: %w", err)
			}
			return data, nil
		},
	}
	build, err := from.Describe(desc, l.platform)
	var other ocimanifest.NotImage
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		err = release.ErrPlatform
	case errors.As(err, &other):
		err = other.Of(release.ErrNotImage)
	}
	return release.Build(build), err
}
