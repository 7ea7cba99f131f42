// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
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

// setOf returns words, to be looked up.
func setOf(words []string) map[string]bool {
	out := map[string]bool{}
	for _, word := range words {
		out[word] = true
	}
	return out
}

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
		r.cache.blobs.put(d, data, len(data), maxCache)
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
	if v, ok := r.cache.versions.get(d); ok {
		return v, nil
	}
	_, body, err := r.registry.Manifest(ctx, r.repository, d.String())
	if err != nil {
		return Version{}, err
	}
	v := Version{Digest: digest.FromBytes(body)}
	if v.Digest != d {
		return Version{}, fmt.Errorf("%s: has digest %s", d, v.Digest)
	}
	if v.Manifest, err = r.decode(ctx, body); err == nil {
		r.cache.versions.put(d, v, 1, maxVersions)
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

// Read returns the newest version of a channel. Its error has KindChannel if there is no such channel; with keys,
// KindUnsigned if it has no valid signature.
func (p *Publisher) Read(ctx context.Context, channel string) (Version, error) {
	k, err := p.keysOf(channel)
	if err != nil {
		return Version{}, err
	}
	p.step("reading %s", channel)
	return p.newest(ctx, channel, k)
}

// newest returns the version that the tag of a channel names.
func (p *Publisher) newest(ctx context.Context, channel string, k keys) (Version, error) {
	v, err := p.read(ctx, channel, channel, k)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return Version{}, p.noChannel(ctx, channel)
	case isKind(err, KindUnsigned):
		return Version{}, p.nameBase(ctx, channel, k, err)
	case err != nil:
		return Version{}, err
	case v.Channel != channel || v.Name != p.name:
		return Version{}, refuse(KindRaced, channel, "it was published as channel %s of %s", v.Channel, v.Name)
	}
	return v, p.state.note(ctx, p.name, channel, v, !k.areThere() || v.SignedBy != "")
}

// ReadVersion returns an earlier version of a channel, which was not pruned.
func (p *Publisher) ReadVersion(ctx context.Context, channel string, version uint64) (Version, error) {
	k, err := p.keysOf(channel)
	if err != nil {
		return Version{}, err
	}
	p.step("reading %s", catalog.VersionTag(channel, version))
	return p.readVersion(ctx, channel, version, k)
}

func (p *Publisher) readVersion(ctx context.Context, channel string, version uint64, k keys) (Version, error) {
	tag := catalog.VersionTag(channel, version)
	v, err := p.read(ctx, tag, channel, k)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return v, refuse(KindImage, tag, "the registry has no such version: it was pruned, or never published")
	case err == nil && (v.Channel != channel || v.Name != p.name || v.Version != version):
		err = refuse(KindRaced, tag, "the tag names version %d of channel %s of %s", v.Version, v.Channel, v.Name)
	}
	return v, err
}

// read returns the version of a tag or digest, signed with the keys of a channel.
func (p *Publisher) read(ctx context.Context, tagOrDigest, channel string, k keys) (Version, error) {
	_, body, err := p.registry.Manifest(ctx, p.repository, tagOrDigest)
	if err != nil {
		return Version{}, err
	}
	d := digest.FromBytes(body)
	if isProbe(tagOrDigest, d) {
		return Version{}, fmt.Errorf("%s: %w", tagOrDigest, release.ErrNotFound)
	}
	signedBy, isKnown := p.cache.signers.get(channel + " " + d.String())
	if k.areThere() && !isKnown {
		signedBy, err = k.version(ctx, &p.reader, d)
		isUnsigned := errors.Is(err, signature.ErrUnsigned)
		if isUnsigned { // or prune has deleted it since it was read, and its signature
			if _, errHead := p.registry.Head(ctx, p.repository, d.String()); errors.Is(errHead, release.ErrNotFound) {
				return Version{}, fmt.Errorf("%s: %w", tagOrDigest, errHead)
			}
		}
		switch {
		case isUnsigned && p.unsigned:
		case isUnsigned, errors.Is(err, signature.ErrWrong):
			return Version{}, &Error{Kind: KindUnsigned, Object: tagOrDigest, Text: "no valid signature", Err: err}
		case err != nil:
			return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
		default:
			p.cache.signers.put(channel+" "+d.String(), signedBy, 0, 0)
		}
	}
	v, isKnown := p.cache.versions.get(d)
	if !isKnown {
		v.Digest = d
		if v.Manifest, err = p.decode(ctx, body); err != nil {
			return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
		}
		p.cache.versions.put(d, v, 1, maxVersions)
	}
	v.SignedBy = signedBy
	return v, nil
}

// noChannel returns the error for a channel that is not there, with those that are.
func (p *Publisher) noChannel(ctx context.Context, channel string) error {
	channels, err := p.Channels(ctx)
	if err != nil {
		return err
	}
	e := refuse(KindChannel, channel, "%s has no such channel", p.repository)
	if e.Near = near(channel, channels); len(e.Near) == 0 && len(channels) > 0 {
		e.Text += ", only " + some(channels)
	}
	return e
}

// Channels lists the channels, sorted.
func (p *Publisher) Channels(ctx context.Context) ([]string, error) {
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, tag := range tags {
		if catalog.CheckChannel(tag) == nil {
			out = append(out, tag)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ExistingChannels is Channels, with an error of KindChannel if there is none.
func (p *Publisher) ExistingChannels(ctx context.Context) ([]string, error) {
	channels, err := p.Channels(ctx)
	if err == nil && len(channels) == 0 {
		err = refuse(KindChannel, p.repository, "the catalog has no channel")
	}
	return channels, err
}

const (
	maxCache    = 64 << 20 // bytes of blobs
	maxTagLists = 64       // of repositories of images: a batch has the builds of an image together
	maxVersions = 100      // one may have megabytes of references
)

// cache has what one publisher has read and verified, by what never changes: digests, and the
// tags of ops. The zero value is empty.
type cache struct {
	blobs    kept[digest.Digest, []byte]
	own      kept[digest.Digest, []byte] // of a directory: the registry does not have them yet, so they stay
	tags     kept[string, []string]      // by repository of images
	listing  singleflight.Group          // of tags
	versions kept[digest.Digest, Version]
	signers  kept[string, string]   // the keys of versions, as they were verified, by channel and digest
	ops      kept[string, cachedOp] // by channel and tag
}

// cachedOp is an op that was read, or why it does not count.
type cachedOp struct {
	op  catalog.Op
	why string
}

// kept are values by their keys.
type kept[K comparable, V any] struct {
	mu   sync.Mutex
	of   map[K]V
	size int
}

func (k *kept[K, V]) get(key K) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value, ok := k.of[key]
	return value, ok
}

// put keeps a value. All values together have at most so much size; without a size, they stay.
func (k *kept[K, V]) put(key K, value V, size, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size += size; k.of == nil || k.size > most {
		k.of, k.size = map[K]V{}, size
	}
	k.of[key] = value
}

func (c *cache) blob(d digest.Digest) ([]byte, bool) {
	if data, ok := c.own.get(d); ok {
		return data, true
	}
	return c.blobs.get(d)
}
