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
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Options configure Open.
type Options struct {
	// Platform chooses from an index; nil means this machine's.
	Platform platforms.MatchComparer
	// Log may be nil.
	Log *slog.Logger
}

// Layout is the source of releases in a place. It is safe for concurrent use.
type Layout struct {
	host     string // "oci:PATH"
	place    place
	platform platforms.MatchComparer
	names    map[release.Reference]named
	tags     map[string][]string // by repository
	homes    map[string][]home   // by repository
}

// named is the digest of a name; other is a second one, which makes the name ambiguous.
type named struct{ digest, other digest.Digest }

var _ source.Source = (*Layout)(nil)

// Open reads the indexes of a directory or tar file: one layout, or a tree of them. The
// error is fs.ErrNotExist, ErrNotLayout, ErrCompressed, ErrUnnamed, or about a defect. The
// Layout keeps the path open until Close.
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
		o.Log.Warn("images without a usable name in the layout", "source", l.host, "count", unnamed)
	}
	return l, nil
}

// Close closes the path. Open layers stay readable.
func (l *Layout) Close() error {
	if err := l.place.Close(); err != nil {
		return fmt.Errorf("%s: close: %w", l.host, err)
	}
	return nil
}

// Resolve returns the digest of a name, and verifies its manifest.
func (l *Layout) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	if err := ctx.Err(); err != nil {
		return release.Resolved{}, l.failed(ref.Repository, err)
	}
	release.Asking(ctx)
	if tags.Classify(ref.Tag) == tags.ClassInvalid {
		return release.Resolved{}, fmt.Errorf("layout: %q: %w", ref, tags.ErrInvalid)
	}
	n, ok := l.names[ref]
	switch {
	case !ok:
		return release.Resolved{}, l.failed(ref.Repository, fmt.Errorf("%s: %w", ref.Tag, release.ErrNotFound))
	case n.other != "":
		return release.Resolved{}, l.failed(ref.Repository,
			fmt.Errorf("%s: ambiguous: names both %s and %s", ref.Tag, n.digest, n.other))
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

// Tags lists the tags of a repository, sorted; release.ErrNotFound if there are none.
func (l *Layout) Tags(ctx context.Context, repository string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, l.failed(repository, err)
	}
	release.Asking(ctx)
	list := l.tags[repository]
	if len(list) == 0 {
		return nil, l.failed(repository, release.ErrNotFound)
	}
	return slices.Sorted(slices.Values(list)), nil
}

// failed adds repository and place to an error. A place is always a copy of a registry, so it counts as a mirror.
func (l *Layout) failed(repository string, err error) *release.SourceError {
	return &release.SourceError{Repository: repository, Host: l.host, Mirror: true, Err: outside.Error(err)}
}
