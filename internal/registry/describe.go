// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Describe fetches what a digest is, for the node's platform: the manifest (of
// an index the one that fits) and the image config, two or three requests.
func (r *Registry) Describe(ctx context.Context, repository string, d digest.Digest) (agent.Build, error) {
	if err := d.Validate(); err != nil {
		return agent.Build{}, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	var build agent.Build
	err := r.each(ctx, repository, mayPull, func(e endpoint) error {
		var err error
		build, err = r.describe(ctx, e, d)
		return err
	})
	return build, err
}

func (r *Registry) describe(ctx context.Context, e endpoint, d digest.Digest) (agent.Build, error) {
	from := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) { return r.document(ctx, e, desc) },
		Config: func(desc ocispec.Descriptor) ([]byte, error) {
			u := e.url("blobs", desc.Digest.String())
			a, err := r.sized(ctx, e, desc, question{url: u, accept: "*/*", limit: ocimanifest.MaxConfig})
			return a.body, err
		},
	}
	build, err := from.Describe(ocispec.Descriptor{Digest: d, Size: -1}, r.platform)
	var noAnswer *agent.SourceError
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		return agent.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, agent.ErrPlatform)
	case err != nil && !errors.As(err, &noAnswer):
		return agent.Build{}, e.failed(err)
	}
	return agent.Build(build), err
}

// document fetches a manifest or index by digest. What an index leads to is of the
// kind that the index names, whatever the host says: so does containerd read it.
func (r *Registry) document(ctx context.Context, e endpoint, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	u := e.url("manifests", desc.Digest.String())
	a, err := r.sized(ctx, e, desc, question{url: u, accept: acceptManifests, limit: maxManifest})
	switch {
	case err != nil:
		return ocimanifest.Document{}, err
	case desc.Size < 0:
		return parseManifest(a.header.Get("Content-Type"), a.body)
	}
	return ocimanifest.Parse(desc.MediaType, a.body)
}

// sized puts a question for what a descriptor names.
func (r *Registry) sized(ctx context.Context, e endpoint, desc ocispec.Descriptor, q question) (answer, error) {
	a, err := r.exchange(ctx, e, q)
	if err != nil {
		return answer{}, err
	}
	return a, verifySized(desc, a.body)
}

// verifySized compares content with its descriptor. A size below zero is unknown.
func verifySized(desc ocispec.Descriptor, content []byte) error {
	if desc.Size >= 0 && desc.Size != int64(len(content)) {
		return fmt.Errorf("%s: %d bytes, not %d", desc.Digest, len(content), desc.Size)
	}
	return verify(desc.Digest, content)
}
