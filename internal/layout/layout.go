// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Options say how a layout is read. The zero value reads it for this machine.
type Options struct {
	// Platform chooses from an index; nil: that of this machine.
	Platform platforms.MatchComparer
	// Log is told of what was left out; nil: nowhere.
	Log *slog.Logger
}

// Layout is the source of releases in a place. It is safe for concurrent use.
type Layout struct {
	host     string // "oci:PATH", where a registry has its host
	place    place
	platform platforms.MatchComparer
	names    map[release.Reference]named
	tags     map[string][]string // by repository
	homes    map[string][]home   // by repository: the layouts that name it
}

// named is what a name says: a digest, or that several claim the name.
type named struct {
	digest   digest.Digest
	contrary digest.Digest
}

var _ source.Source = (*Layout)(nil)

// Open reads the indexes of a directory or tar file: one layout, or a tree of
// them. The error is fs.ErrNotExist, ErrNotLayout, ErrCompressed, ErrUnnamed, or
// says what is broken. The layout holds the path open until Close.
func Open(path string, o Options) (*Layout, error) {
	if o.Platform == nil {
		o.Platform = platforms.Default()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := openPlace(path)
	if err != nil {
		return nil, fmt.Errorf("oci:%s: %w", path, err)
	}
	l := &Layout{
		host: "oci:" + path, place: p, platform: o.Platform,
		names: map[release.Reference]named{}, tags: map[string][]string{}, homes: map[string][]home{},
	}
	unnamed, err := l.load()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("oci:%s: %w", path, err), p.Close())
	}
	if unnamed > 0 {
		o.Log.Warn("layout has images without a usable name", "source", l.host, "count", unnamed)
	}
	return l, nil
}

// Close lets go of the path. Layers that are being read are read on.
func (l *Layout) Close() error {
	if err := l.place.Close(); err != nil {
		return fmt.Errorf("%s: close: %w", l.host, err)
	}
	return nil
}

// Resolve says what a name named when the layout was opened, and proves that
// the manifest behind it is there.
func (l *Layout) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	if err := ctx.Err(); err != nil {
		return release.Resolved{}, l.failed(ref.Repository, err)
	}
	if tags.Classify(ref.Tag) == tags.ClassInvalid {
		return release.Resolved{}, fmt.Errorf("layout: %q: %w", ref, tags.ErrInvalid)
	}
	n, ok := l.names[ref]
	switch {
	case !ok:
		return release.Resolved{}, l.failed(ref.Repository, fmt.Errorf("%s: %w", ref.Tag, release.ErrNotFound))
	case n.contrary != "":
		return release.Resolved{}, l.failed(ref.Repository,
			fmt.Errorf("%s: ambiguous: names both %s and %s", ref.Tag, n.digest, n.contrary))
	}
	at, desc, err := l.find(ref.Repository, n.digest)
	if err == nil {
		_, err = l.manifest(at, desc)
	}
	if err != nil {
		return release.Resolved{}, l.failed(ref.Repository, fmt.Errorf("%s: %w", ref.Tag, err))
	}
	return release.Resolved{Digest: n.digest, Host: l.host, Mirror: true}, nil
}

// Tags lists the tags of a repository, sorted. A repository without any is
// release.ErrNotFound.
func (l *Layout) Tags(ctx context.Context, repository string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.failed(repository, err)
	}
	list := l.tags[repository]
	if len(list) == 0 {
		return nil, l.failed(repository, release.ErrNotFound)
	}
	return slices.Sorted(slices.Values(list)), nil
}

// failed says of which repository and place an error is. The other side of a
// stick is always the registry, so it counts as a mirror.
func (l *Layout) failed(repository string, err error) *release.SourceError {
	return &release.SourceError{Repository: repository, Host: l.host, Mirror: true, Err: outside.Error(err)}
}
