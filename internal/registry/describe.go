// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
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
	for _, child := range r.fitting(top.Manifests) {
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
		return build, err
	}
	return agent.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, agent.ErrPlatform)
}

// fitting gives the manifests of an index for the node's platform in the order
// in which containerd tries them: best match first, those that name no platform
// last.
func (r *Registry) fitting(manifests []ocispec.Descriptor) []ocispec.Descriptor {
	var fit []ocispec.Descriptor
	for _, m := range manifests {
		if m.Platform == nil || r.platform.Match(*m.Platform) {
			fit = append(fit, m)
		}
	}
	slices.SortStableFunc(fit, func(a, b ocispec.Descriptor) int {
		switch {
		case a.Platform == nil && b.Platform == nil:
			return 0
		case a.Platform == nil:
			return 1
		case b.Platform == nil || r.platform.Less(*a.Platform, *b.Platform):
			return -1
		case r.platform.Less(*b.Platform, *a.Platform):
			return 1
		}
		return 0
	})
	return fit[:min(len(fit), maxChildren)]
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

// image fetches the config of a manifest and checks that it runs here: the
// platform that an index names is only what its publisher wrote there.
func (r *Registry) image(
	ctx context.Context, e endpoint, d digest.Digest, m ocimanifest.Document,
) (agent.Build, error) {
	if !images.IsConfigType(m.Config.MediaType) {
		return agent.Build{}, e.failed(
			fmt.Errorf("manifest %s: config %q: not an image", d, ocimanifest.Clip(m.Config.MediaType)))
	}
	size, err := m.Size()
	if err != nil {
		return agent.Build{}, e.failed(err)
	}
	if m.Config.Size > maxConfig {
		return agent.Build{}, e.failed(fmt.Errorf("config: %w: %d bytes", errTooLarge, m.Config.Size))
	}
	u := e.url("blobs", m.Config.Digest.String())
	a, err := r.exchange(ctx, e, question{http.MethodGet, u, "*/*", maxConfig})
	if err != nil {
		return agent.Build{}, err
	}
	if err := verifySized(m.Config, a.body); err != nil {
		return agent.Build{}, e.failed(err)
	}
	var config ocispec.Image
	if err := json.Unmarshal(a.body, &config); err != nil {
		return agent.Build{}, e.failed(fmt.Errorf("config: %w", err))
	}
	if !r.platform.Match(platforms.Normalize(config.Platform)) {
		return agent.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, agent.ErrPlatform)
	}
	build := agent.Build{
		Config: m.Config.Digest, Size: size,
		Version: label(config.Config.Labels[ocispec.AnnotationVersion]),
	}
	if config.Created != nil {
		build.Created = config.Created.UTC()
	}
	return build, nil
}

func verifySized(desc ocispec.Descriptor, content []byte) error {
	if desc.Size >= 0 && desc.Size != int64(len(content)) {
		return fmt.Errorf("%s: %d bytes, not %d", desc.Digest, len(content), desc.Size)
	}
	return verify(desc.Digest, content)
}

// label bounds what a person will see: no control characters, as much as a tag
// may have.
func label(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, text)
	if len(text) > maxVersion {
		text = strings.ToValidUTF8(text[:maxVersion], "")
	}
	return text
}
