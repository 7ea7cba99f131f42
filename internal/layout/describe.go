// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Describe reads what a digest is, for the node's platform: the manifest (of an
// index the one that fits) and the image config.
func (l *Layout) Describe(ctx context.Context, repository string, d digest.Digest) (agent.Build, error) {
	if err := ctx.Err(); err != nil {
		return agent.Build{}, l.failed(repository, err)
	}
	at, desc, err := l.find(repository, d)
	if err != nil {
		return agent.Build{}, l.failed(repository, err)
	}
	build, err := l.describe(at, desc)
	switch {
	case errors.Is(err, agent.ErrPlatform):
		return agent.Build{}, fmt.Errorf("layout: %s@%s: %w", repository, d, err) // an answer
	case err != nil:
		return agent.Build{}, l.failed(repository, err)
	}
	return build, nil
}

// find looks for an entry in the layouts of a repository.
func (l *Layout) find(repository string, d digest.Digest) (home, ocispec.Descriptor, error) {
	for _, at := range l.homes[repository] {
		if desc, ok := at.entries[d]; ok {
			return at, desc, nil
		}
	}
	return home{}, ocispec.Descriptor{}, fmt.Errorf("%s: %w", ocimanifest.Clip(d.String()), agent.ErrNotFound)
}

func (l *Layout) describe(at home, desc ocispec.Descriptor) (agent.Build, error) {
	top, err := l.manifest(at, desc)
	if err != nil {
		return agent.Build{}, err
	}
	if !top.IsIndex() {
		return l.image(at, desc.Digest, top)
	}
	for _, child := range l.fitting(top.Manifests) {
		m, err := l.manifest(at, child)
		if err != nil {
			return agent.Build{}, err
		}
		if m.IsIndex() {
			return agent.Build{}, fmt.Errorf("index %s: has an index where a manifest is due", desc.Digest)
		}
		build, err := l.image(at, child.Digest, m)
		if child.Platform == nil && errors.Is(err, agent.ErrPlatform) {
			continue // it was only a guess
		}
		return build, err
	}
	return agent.Build{}, agent.ErrPlatform
}

// fitting gives the manifests of an index for the node's platform in the order
// in which containerd tries them: best match first, those that name no platform
// last.
func (l *Layout) fitting(manifests []ocispec.Descriptor) []ocispec.Descriptor {
	var fit []ocispec.Descriptor
	for _, m := range manifests {
		if m.Platform == nil || l.platform.Match(*m.Platform) {
			fit = append(fit, m)
		}
	}
	slices.SortStableFunc(fit, func(a, b ocispec.Descriptor) int {
		switch {
		case a.Platform == nil && b.Platform == nil:
			return 0
		case a.Platform == nil:
			return 1
		case b.Platform == nil || l.platform.Less(*a.Platform, *b.Platform):
			return -1
		case l.platform.Less(*b.Platform, *a.Platform):
			return 1
		}
		return 0
	})
	return fit[:min(len(fit), maxChildren)]
}

// image reads the config of a manifest and checks that it runs here: the
// platform that an index names is only what its publisher wrote there.
func (l *Layout) image(at home, d digest.Digest, m ocimanifest.Document) (agent.Build, error) {
	if !images.IsConfigType(m.Config.MediaType) {
		return agent.Build{}, fmt.Errorf("manifest %s: config %q: not an image", d, ocimanifest.Clip(m.Config.MediaType))
	}
	size, err := m.Size()
	if err != nil {
		return agent.Build{}, err
	}
	data, err := l.document(at, m.Config, maxConfig)
	if err != nil {
		return agent.Build{}, fmt.Errorf("config: %w", err)
	}
	var config ocispec.Image
	if err := json.Unmarshal(data, &config); err != nil {
		return agent.Build{}, fmt.Errorf("config %s: %w", m.Config.Digest, err)
	}
	if !l.platform.Match(platforms.Normalize(config.Platform)) {
		return agent.Build{}, agent.ErrPlatform
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
