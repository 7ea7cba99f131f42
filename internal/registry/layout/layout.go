// SPDX-License-Identifier: Apache-2.0

// Package layout reads releases from removable media or a disk, for nodes without a registry: it implements
// source.Source and images.Source for OCI image layouts in a directory or a tar file.
//
// # Words
//
// A layout has the files oci-layout and index.json, and blobs by digest (OCI image specification). A place is an open
// directory or tar file: one layout, or a tree of them. An entry is a descriptor of index.json. A name is
// repository:tag.
//
// # Names
//
// An entry is named by its annotations, io.containerd.image.name (ctr) and org.opencontainers.image.ref.name (skopeo,
// crane, buildah): either a whole name such as registry.suse.com/caasp/v4/velum:4.0.0-rev1, or a bare tag. A bare tag
// counts only in a tree, where the path of the layout is the repository: in
// registry.suse.com/caasp/v4/velum/index.json, 4.0.0-rev1 is the name above. Entries without a usable name are counted
// and logged.
//
// # Promises
//
//   - Open reads all names; later changes of the files need another Open.
//   - Size and digest of every manifest, config and layer are verified, before
//     containerd does the same.
//   - A missing or damaged blob is an error, but not release.ErrNotFound, which is
//     for tags.
//   - A name with two digests is an error. An ambiguous manifest (CVE-2021-41190) is
//     rejected.
//   - Only regular files inside of the directory are read. A tar file is read in
//     place, so it must not be compressed.
//   - Size, count and depth of the input are limited (limits.go).
//
// Why not `ctr images import`: it would write the floating tag's record at once, unapproved and unchecked. A compressed
// tar file is refused because finding a layer in it means unpacking all before it.
package layout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
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

// Describe reads the manifest (of an index, the platform's one) and the image config of a
// digest.
func (l *Layout) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if err := ctx.Err(); err != nil {
		return release.Build{}, l.failed(repository, err)
	}
	release.Asking(ctx)
	at, desc, err := l.find(repository, d)
	if err != nil {
		return release.Build{}, l.failed(repository, err)
	}
	build, err := l.describe(at, desc)
	switch {
	case errors.Is(err, release.ErrPlatform):
		return release.Build{}, fmt.Errorf("layout: %s@%s: %w", repository, d, err) // a valid answer
	case err != nil:
		return release.Build{}, l.failed(repository, err)
	}
	return build, nil
}

// find returns an entry of a repository, and its layout.
func (l *Layout) find(repository string, d digest.Digest) (home, ocispec.Descriptor, error) {
	for _, at := range l.homes[repository] {
		if desc, ok := at.entries[d]; ok {
			return at, desc, nil
		}
	}
	return home{}, ocispec.Descriptor{}, fmt.Errorf("%s: %w", outside.Text(d.String()), release.ErrNotFound)
}

func (l *Layout) describe(at home, desc ocispec.Descriptor) (release.Build, error) {
	from := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) { return l.manifest(at, desc) },
		Config: func(desc ocispec.Descriptor) ([]byte, error) {
			data, err := l.document(at, desc, ocimanifest.MaxConfig)
			if err != nil {
				return nil, fmt.Errorf("config: %w", err)
			}
			return data, nil
		},
	}
	build, err := from.Describe(desc, l.platform)
	var other ocimanifest.NotImage
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		err = release.ErrPlatform
	case errors.As(err, &other):
		err = other.Of(release.ErrNotImage)
	}
	return release.Build(build), err
}

// Locate describes a digest in a repository, without the annotations of its entry: a
// registry has none.
func (l *Layout) Locate(_ context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	_, desc, err := l.find(repository, d)
	if err != nil {
		return ocispec.Descriptor{}, l.failed(repository, err)
	}
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, nil
}

// Fetch opens a blob. Its reader verifies the digest at the end.
func (l *Layout) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	file, err := firstOf(l, repository, desc.Digest, func(at home) (io.ReadCloser, error) { return l.blob(at, desc) })
	if err != nil {
		return nil, err
	}
	return &verified{
		ReadCloser: file, ctx: ctx, want: desc.Digest, digester: desc.Digest.Algorithm().Digester(),
		failed: func(err error) error { return l.failed(repository, err) },
	}, nil
}

// verified is a blob whose reader returns an error at the end unless the digest is right. It cannot seek: a resumed
// pull reads from the start, to compute the digest.
type verified struct {
	io.ReadCloser

	ctx      context.Context //nolint:containedctx // the pull's
	want     digest.Digest
	digester digest.Digester
	failed   func(error) error
}

func (v *verified) Read(p []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := v.ReadCloser.Read(p)
	v.digester.Hash().Write(p[:n])
	switch {
	case errors.Is(err, io.EOF):
		if wrong := verify(v.want, v.digester.Digest()); wrong != nil {
			return n, v.failed(wrong)
		}
	case err != nil:
		return n, v.failed(fmt.Errorf("%s: %w", v.want, nodefile.Plain(err)))
	}
	return n, err
}
