// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

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
