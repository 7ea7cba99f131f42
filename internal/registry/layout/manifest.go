// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// errBlob is a missing blob. It is neither the fs.ErrNotExist of the place nor the release.ErrNotFound of a source.
var errBlob = errors.New("blob is missing: the layout is incomplete")

// firstOf reads a blob from the first layout of the repository that has it.
func firstOf[T any](l *Layout, repository string, d digest.Digest, read func(home) (T, error)) (T, error) {
	err := fmt.Errorf("%s: %w", outside.Text(d.String()), errBlob)
	for _, at := range l.homes[repository] {
		found, readErr := read(at)
		if readErr == nil {
			return found, nil
		}
		if !errors.Is(readErr, errBlob) {
			err = readErr
		}
	}
	var none T
	return none, l.failed(repository, err)
}

// blob opens a blob of a layout and compares its size with the descriptor.
func (l *Layout) blob(at home, desc ocispec.Descriptor) (io.ReadCloser, error) {
	d := desc.Digest
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w", outside.Text(d.String()), err)
	}
	file, size, err := l.place.open(at.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d, errBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if size != desc.Size {
		file.Close()
		return nil, fmt.Errorf("%s: blob has %d bytes, not %d", d, size, desc.Size)
	}
	return file, nil
}

// document reads a small blob and verifies its digest.
func (l *Layout) document(at home, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if desc.Size > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes", desc.Digest, outside.ErrTooLarge, desc.Size)
	}
	file, err := l.blob(at, desc)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := outside.ReadAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", desc.Digest, nodefile.Plain(err))
	}
	if err := verify(desc.Digest, desc.Digest.Algorithm().FromBytes(data)); err != nil {
		return nil, err
	}
	return data, nil
}

// manifest reads a manifest or index.
func (l *Layout) manifest(at home, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	data, err := l.document(at, desc, maxManifest)
	if err != nil {
		return ocimanifest.Document{}, err
	}
	return ocimanifest.Parse(desc.MediaType, data)
}

func verify(want, got digest.Digest) error {
	if got != want {
		return fmt.Errorf("blob %s: content has digest %s", want, got)
	}
	return nil
}
