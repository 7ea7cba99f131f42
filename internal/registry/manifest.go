// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"mime"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// acceptManifests are the kinds of manifest that containerd runs images from,
// in its order. A registry that keeps OCI manifests answers 404 to a request
// that does not name their types.
var acceptManifests = strings.Join([]string{
	images.MediaTypeDockerSchema2Manifest,
	images.MediaTypeDockerSchema2ManifestList,
	ocispec.MediaTypeImageManifest,
	ocispec.MediaTypeImageIndex,
}, ", ")

// parseManifest reads what came as the Content-Type says.
func parseManifest(contentType string, body []byte) (ocimanifest.Document, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: %w", outside.Text(contentType), err)
	}
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: not an image", outside.Text(kind))
	}
	return ocimanifest.Parse(kind, body)
}
