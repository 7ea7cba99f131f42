// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
)

// Describe fetches what a digest is, for the node's platform: the manifest (of
// an index the one that fits) and the image config, two or three requests.
func (r *Registry) Describe(ctx context.Context, repository string, d digest.Digest) (agent.Build, error) {
	if err := d.Validate(); err != nil {
		return agent.Build{}, fmt.Errorf("registry: %s: digest %q: %w", repository, ocimanifest.Clip(d.String()), err)
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
	top, err := r.manifest(ctx, e, ocispec.Descriptor{Digest: d, Size: -1})
	if err != nil {
		return agent.Build{}, err
	}
	if !top.IsIndex() {
		return r.image(ctx, e, d, top)
	}
	for _, child := range top.Fitting(r.platform) {
		m, err := r.manifest(ctx, e, child)
		if err != nil {
			return agent.Build{}, err
		}
		if m.IsIndex() {
			return agent.Build{}, e.failed(fmt.Errorf("index %s: has an index where a manifest is due", d))
		}
		build, err := r.image(ctx, e, child.Digest, m)
		if child.Platform == nil && errors.Is(err, agent.ErrPlatform) {
			continue // it was only a guess
		}
		if err == nil {
			build.Manifest = child.Digest
		}
		return build, err
	}
	return agent.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, agent.ErrPlatform)
}

// manifest fetches a manifest or index by digest. A size below zero is unknown.
func (r *Registry) manifest(ctx context.Context, e endpoint, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	u := e.url("manifests", desc.Digest.String())
	a, err := r.exchange(ctx, e, question{http.MethodGet, u, acceptManifests, maxManifest})
	if err != nil {
		return ocimanifest.Document{}, err
	}
	if err := verifySized(desc, a.body); err != nil {
		return ocimanifest.Document{}, e.failed(err)
	}
	doc, err := parseManifest(a.header.Get("Content-Type"), a.body)
	if err != nil {
		return ocimanifest.Document{}, e.failed(err)
	}
	return doc, nil
}

// image fetches the config of a manifest and checks that it runs here.
func (r *Registry) image(
	ctx context.Context, e endpoint, d digest.Digest, m ocimanifest.Document,
) (agent.Build, error) {
	desc, err := m.ImageConfig()
	if err != nil {
		return agent.Build{}, e.failed(err)
	}
	u := e.url("blobs", desc.Digest.String())
	a, err := r.exchange(ctx, e, question{http.MethodGet, u, "*/*", ocimanifest.MaxConfig})
	if err != nil {
		return agent.Build{}, err
	}
	if err := verifySized(desc, a.body); err != nil {
		return agent.Build{}, e.failed(err)
	}
	build, platform, err := m.Build(a.body)
	if err != nil {
		return agent.Build{}, e.failed(err)
	}
	if !r.platform.Match(platform) {
		return agent.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, agent.ErrPlatform)
	}
	return agent.Build(build), nil
}

func verifySized(desc ocispec.Descriptor, content []byte) error {
	if desc.Size >= 0 && desc.Size != int64(len(content)) {
		return fmt.Errorf("%s: %d bytes, not %d", desc.Digest, len(content), desc.Size)
	}
	return verify(desc.Digest, content)
}
