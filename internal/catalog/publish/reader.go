// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Registry has the manifests, blobs and tags of a catalog, as *store.Client. What is not there is release.ErrNotFound.
type Registry interface {
	Head(ctx context.Context, repository, tagOrDigest string) (digest.Digest, error)
	Manifest(ctx context.Context, repository, tagOrDigest string) (mediaType string, body []byte, err error)
	Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error)
	// Tags lists the tags of a repository; none if it does not exist.
	Tags(ctx context.Context, repository string) ([]string, error)
	PutBlob(ctx context.Context, repository string, data []byte) (catalog.BlobRef, error)
	PutManifest(ctx context.Context, repository, tag string, body []byte) error
	// Remove deletes a manifest with all its tags.
	Remove(ctx context.Context, repository string, d digest.Digest) error
	Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error)
}

// jobs is how many requests run at once.
const jobs = 8

// maxPast is how many versions are read back at most.
const maxPast = 10_000

// Version is one version of a channel in the registry. The zero value is no version.
type Version struct {
	catalog.Manifest
	Digest   digest.Digest
	SignedBy string // fingerprint of the key; empty: not signed by a trusted one, or there are no keys
}

// reader reads a catalog: what a digest names, and what has named it, once.
type reader struct {
	registry   Registry
	repository string
	name       string // the repository that nodes know the catalog as
	jobs       int
	progress   func(string)
	cache      cache
	pages      catalog.Codec
}

// step reports the next step.
func (r *reader) step(format string, args ...any) { r.progress(fmt.Sprintf(format, args...)) }

// each calls do for all items, several at a time, until one fails.
func each[T any](ctx context.Context, at int, items []T, do func(ctx context.Context, n int, item T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(at)
	for n, item := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, n, item) })
	}
	return g.Wait()
}

// blob returns a blob of the catalog.
func (r *reader) blob(ctx context.Context, d digest.Digest, size int64) ([]byte, error) {
	if data, ok := r.cache.blob(d); ok {
		return data, nil
	}
	data, err := r.registry.Blob(ctx, r.repository, ocispec.Descriptor{Digest: d, Size: size})
	if err == nil {
		r.cache.addBlob(d, data)
	}
	return data, err
}

// decode decodes the manifest of a version, and reads its shards.
func (r *reader) decode(ctx context.Context, body []byte) (catalog.Manifest, error) {
	m, err := catalog.DecodeManifest(body)
	if err != nil || len(m.Shards) == 0 {
		return m, err
	}
	shards := make([][]catalog.PageRef, len(m.Shards))
	err = each(ctx, r.jobs, m.Shards, func(ctx context.Context, n int, ref catalog.ShardRef) error {
		data, err := r.blob(ctx, ref.Digest, ref.Size)
		if err == nil {
			shards[n], err = catalog.DecodeShard(data, ref)
		}
		return err
	})
	if err == nil {
		err = m.Join(shards...)
	}
	return m, err
}

// past returns the version of a digest that a signed one names: it needs no signature of its own.
func (r *reader) past(ctx context.Context, d digest.Digest) (Version, error) {
	if v, ok := r.cache.version(d); ok {
		return v, nil
	}
	_, body, err := r.registry.Manifest(ctx, r.repository, d.String())
	if err != nil {
		return Version{}, err
	}
	v := Version{Digest: digest.FromBytes(body)}
	if v.Digest != d {
		return Version{}, fmt.Errorf("%s: it has digest %s", d, v.Digest)
	}
	if v.Manifest, err = r.decode(ctx, body); err == nil {
		r.cache.addVersion(v)
	}
	return v, err
}

// back calls visit with a version and then with those before it, the newest first, until it returns false. isCut
// reports that older versions exist and cannot be read: they were pruned.
func (r *reader) back(ctx context.Context, v Version, visit func(v Version) (bool, error)) (isCut bool, err error) {
	for range maxPast {
		goOn, err := visit(v)
		if err != nil || !goOn || v.Previous == "" {
			return false, err
		}
		r.step("reading the version before %d", v.Version)
		before, err := r.past(ctx, v.Previous)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && isFinding(err), err == nil && (before.Channel != v.Channel || before.Name != v.Name):
			return true, nil
		case err != nil:
			return false, err
		}
		v = before
	}
	return true, nil
}

// Pages returns the pages of these images of a version, or of all images if none are named. It leaves out images that
// the version does not list.
func (r *reader) Pages(ctx context.Context, v Version, images ...string) (map[string]catalog.Page, error) {
	refs := v.Pages
	if images != nil {
		refs = nil
		for _, image := range images {
			if ref, ok := v.Page(image); ok {
				refs = append(refs, ref)
			}
		}
	}
	pages := make([]catalog.Page, len(refs))
	err := each(ctx, r.jobs, refs, func(ctx context.Context, n int, ref catalog.PageRef) error {
		data, err := r.blob(ctx, ref.Digest, ref.Size)
		if err == nil {
			pages[n], err = r.pages.Decode(data, ref)
		}
		if err != nil {
			return fmt.Errorf("page of %s: %w", ref.Image, err)
		}
		return nil
	})
	out := map[string]catalog.Page{}
	for n, ref := range refs {
		out[ref.Image] = pages[n]
	}
	return out, err
}

// mergedOps returns the ops that a version has folded.
func (r *reader) mergedOps(ctx context.Context, v Version) ([]string, error) {
	if v.Ops.Digest == "" {
		return nil, nil
	}
	data, err := r.blob(ctx, v.Ops.Digest, v.Ops.Size)
	if err != nil {
		return nil, fmt.Errorf("list of ops: %w", err)
	}
	return catalog.DecodeOps(data, v.Ops)
}

// head returns the digest of a tag; empty: there is none, or it is a probe.
func (r *reader) head(ctx context.Context, tag string) (digest.Digest, error) {
	is, err := r.registry.Head(ctx, r.repository, tag)
	if errors.Is(err, release.ErrNotFound) || isProbe(tag, is) {
		return "", nil
	}
	return is, err
}
