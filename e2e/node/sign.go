// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// PushSignature pushes a signature of a digest as cosign and OBS do: an image with the tag sha256-HEX.sig, whose one
// layer is the signed payload.
func (r *Registry) PushSignature(repository, digest string, payload []byte, signature string) {
	r.node.tb.Helper()
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": signature},
	})
	if err == nil {
		repo, errName := r.repository(repository)
		if err = errName; err == nil {
			err = remote.Write(repo.Tag(strings.Replace(digest, ":", "-", 1)+".sig"), image, r.past()...)
		}
	}
	if err != nil {
		r.node.tb.Fatalf("node: sign %s@%s: %v", repository, digest, err)
	}
}
