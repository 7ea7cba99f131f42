// SPDX-License-Identifier: Apache-2.0

// Package channel reads one channel of a release catalog for a node: it implements
// agentcatalog.Channel. An unchanged channel costs one HEAD request; of a new version it fetches the
// manifest, its signature, and the pages of the images that the node runs.
//
// A version is taken as a whole or not at all: signature, format, name, channel, version, time
// and pages are verified in this order. What was verified is stored in the state directory, so
// that an older version is refused after a restart, too.
package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	agentcatalog "github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Fetcher reads a repository: a registry, or an OCI layout.
type Fetcher interface {
	// Resolve returns what a tag names now.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Manifest returns the manifest of a digest, with its media type; the digest is verified.
	Manifest(ctx context.Context, repository, tagOrDigest string) (mediaType string, body []byte, err error)
	// Blob returns a blob; size and digest are verified.
	Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error)
}

// Verifier verifies signatures.
type Verifier interface {
	// Signers returns the fingerprints of the keys that signed a digest. Too few keys: ErrUnsigned or ErrForged of
	// release.
	Signers(ctx context.Context, r release.Release) (keys []string, err error)
	// Trusts reports whether what these keys signed is still accepted.
	Trusts(ctx context.Context, keys []string) (bool, error)
}

// Options configure a Channel. All fields are required but Log.
type Options struct {
	Repository string // as CRI writes it
	Channel    string
	Dir        string // where the verified version is stored
	From       Fetcher
	Verifier   Verifier
	Signatures policy.Signatures
	Now        func() time.Time
	Log        *slog.Logger // nil: nothing is logged
}

// Channel is a channel of a catalog as a node has verified it. It is safe for concurrent use.
type Channel struct {
	o     Options
	store store

	mu      sync.Mutex
	loaded  bool
	known   version
	refused refusal
	shards  map[digest.Digest][]catalog.PageRef // of the version that was read last
}

var _ agentcatalog.Channel = (*Channel)(nil)

// refusal is a manifest that was refused for its content. It is not fetched again.
type refusal struct {
	digest digest.Digest
	err    error
}

// New returns a channel. It reads nothing yet.
func New(o Options) *Channel {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Channel{o: o, store: store{dir: o.Dir, log: o.Log}}
}

// Last returns the last verified listing.
func (c *Channel) Last(ctx context.Context) agentcatalog.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		c.o.Log.WarnContext(ctx, "cannot use the stored catalog", "catalog", c.name(), "err", err)
	}
	return c.known.listing(c.name())
}

// Stored returns the last verified listing, or why the stored one cannot be used.
func (c *Channel) Stored() (agentcatalog.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return agentcatalog.Listing{}, fmt.Errorf("catalog %s: %w", c.name(), err)
	}
	return c.known.listing(c.name()), nil
}

// Forget removes the verified version, so that any version counts as newer.
func (c *Channel) Forget(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.store.remove(); err != nil {
		return fmt.Errorf("catalog %s: %w", c.name(), err)
	}
	c.known, c.refused, c.loaded = version{}, refusal{}, true
	return nil
}

// Refresh asks for a newer version, and for the pages of images that are not known yet. It fails while the stored
// version cannot be read, since any version could be an older one.
func (c *Channel) Refresh(ctx context.Context, images []string) (agentcatalog.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.load()
	if err == nil {
		err = c.refresh(ctx, images)
	}
	if err != nil {
		err = fmt.Errorf("catalog %s: %w", c.name(), err)
	}
	return c.known.listing(c.name()), err
}

func (c *Channel) name() string {
	return release.Reference{Repository: c.o.Repository, Tag: c.o.Channel}.String()
}

// load reads the stored version once. One for another name or channel does not count.
func (c *Channel) load() error {
	if c.loaded {
		return nil
	}
	v, err := c.store.load()
	if err != nil {
		return fmt.Errorf("stored version: %w", err)
	}
	if v.Name == c.o.Repository && v.Channel == c.o.Channel {
		c.known = v
	}
	c.loaded = true
	return nil
}

func (c *Channel) refresh(ctx context.Context, images []string) error {
	if err := c.dropUntrusted(ctx); err != nil {
		return err
	}
	now, err := c.o.From.Resolve(ctx, release.Reference{Repository: c.o.Repository, Tag: c.o.Channel})
	if err != nil {
		return err
	}
	if now.Digest == c.known.Digest && c.known.has(images) {
		c.known.by = now
		return nil
	}
	if now.Digest == c.refused.digest {
		return c.refused.err
	}
	next, err := c.read(ctx, now.Digest, images)
	if err != nil {
		err = refusing(err)
		if errors.Is(err, release.ErrCatalog) && !dependsOnClock(err) {
			c.refused = refusal{now.Digest, err}
		}
		return err
	}
	if err := c.store.save(next); err != nil {
		return err // a version that is not stored could be taken back after a restart
	}
	next.by = now
	for image, page := range next.pages {
		next.pages[image] = storedPage{nil, page.releases}
	}
	c.known, c.refused = next, refusal{}
	c.o.Log.InfoContext(ctx, "catalog verified", "catalog", c.name(), "version", next.Version, "digest", next.Digest,
		"keys", next.Keys)
	return nil
}

// refusing marks the errors that the publisher or an attacker has caused. Two publishers
// may make a version of the same number for a moment, which is no such error.
func refusing(err error) error {
	e, ok := errors.AsType[*catalog.Error](err)
	if !ok || e.Kind == catalog.KindChanged {
		return err
	}
	return fmt.Errorf("%w: %w", release.ErrCatalog, err)
}

// dependsOnClock reports whether the same manifest may be right once the node's clock is.
func dependsOnClock(err error) bool {
	e, ok := errors.AsType[*catalog.Error](err)
	return ok && e.Kind == catalog.KindFuture
}

// dropUntrusted drops the known version if too few of its keys are trusted now.
func (c *Channel) dropUntrusted(ctx context.Context) error {
	if c.known.Version == 0 || c.o.Signatures != policy.SignaturesRequire {
		return nil
	}
	trusted, err := c.o.Verifier.Trusts(ctx, c.known.Keys)
	if err != nil || trusted {
		return err
	}
	c.o.Log.WarnContext(ctx, "the keys that signed the catalog are not enough any more",
		"catalog", c.name(), "keys", c.known.Keys)
	untrusted := c.known
	untrusted.Keys, untrusted.Images = nil, nil
	c.known = untrusted // its version still counts, so that no older one is taken
	return nil
}

// read reads and verifies the version behind a digest.
func (c *Channel) read(ctx context.Context, d digest.Digest, images []string) (version, error) {
	_, body, err := c.o.From.Manifest(ctx, c.o.Repository, d.String())
	if err != nil {
		return version{}, err
	}
	keys, err := c.verify(ctx, d)
	if err != nil {
		return version{}, err
	}
	m, err := catalog.DecodeManifest(body)
	if err != nil {
		return version{}, err
	}
	known := catalog.Known{Version: c.known.Version, Digest: c.known.Digest}
	if err := m.Follows(known, d, c.o.Repository, c.o.Channel, c.o.Now()); err != nil {
		return version{}, err
	}
	c.dropShards(m)
	next := version{
		Name: m.Name, Channel: m.Channel, Version: m.Version, Digest: d, Created: m.Created, Expires: m.Expires, Keys: keys,
		Images: map[string]digest.Digest{}, pages: map[string]storedPage{},
	}
	for _, image := range images {
		next.Images[image] = ""
		ref, listed, err := c.pageRef(ctx, m, image)
		if err != nil {
			return version{}, err
		}
		if !listed {
			continue
		}
		page, err := c.page(ctx, ref)
		if err != nil {
			return version{}, err
		}
		next.Images[image], next.pages[image] = ref.Digest, page
	}
	return next, nil
}

// dropShards forgets shards that a version does not have.
func (c *Channel) dropShards(m catalog.Manifest) {
	kept := map[digest.Digest][]catalog.PageRef{}
	for _, ref := range m.Shards {
		if pages, ok := c.shards[ref.Digest]; ok {
			kept[ref.Digest] = pages
		}
	}
	c.shards = kept
}

// pageRef returns the reference to the page of an image. If the manifest has shards, it reads the shard of the image.
func (c *Channel) pageRef(ctx context.Context, m catalog.Manifest, image string) (catalog.PageRef, bool, error) {
	ref, ok := m.Shard(image)
	if !ok {
		page, listed := m.Page(image)
		return page, listed, nil
	}
	pages, ok := c.shards[ref.Digest]
	if !ok {
		data, err := c.o.From.Blob(ctx, c.o.Repository, ocispec.Descriptor{
			MediaType: catalog.ShardMediaType, Digest: ref.Digest, Size: ref.Size,
		})
		if err == nil {
			pages, err = catalog.DecodeShard(data, ref)
		}
		if err != nil {
			return catalog.PageRef{}, false, fmt.Errorf("shard of %s: %w", image, err)
		}
		c.shards[ref.Digest] = pages
	}
	page, listed := catalog.Manifest{Pages: pages}.Page(image)
	return page, listed, nil
}

// verify returns the keys that signed a manifest; none if the node does not require a signature.
func (c *Channel) verify(ctx context.Context, d digest.Digest) ([]string, error) {
	if c.o.Signatures == policy.SignaturesOff || c.o.Signatures == "" {
		return nil, nil
	}
	keys, err := c.o.Verifier.Signers(ctx, release.Release{Repository: c.o.Repository, Digest: d})
	if err != nil && c.o.Signatures == policy.SignaturesWarn {
		c.o.Log.WarnContext(ctx, "catalog has no valid signature", "catalog", c.name(), "digest", d, "err", err)
		return nil, nil
	}
	return keys, err
}

// page returns a page of the new version. A known one is not fetched again.
func (c *Channel) page(ctx context.Context, ref catalog.PageRef) (storedPage, error) {
	if known, ok := c.known.pages[ref.Image]; ok && c.known.Images[ref.Image] == ref.Digest {
		return known, nil
	}
	data, err := c.o.From.Blob(ctx, c.o.Repository, ocispec.Descriptor{
		MediaType: catalog.PageMediaType, Digest: ref.Digest, Size: ref.Size,
	})
	if err != nil {
		return storedPage{}, fmt.Errorf("page of %s: %w", ref.Image, err)
	}
	page, err := catalog.DecodePage(data, ref)
	return storedPage{data, page.WithoutUnknown().Releases}, err
}
