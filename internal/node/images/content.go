// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// contents is the content of containerd: two listings, for any number of images. Requests for single blobs took half of
// a poll's CPU.
type contents struct {
	blobs     map[digest.Digest]bool
	snapshots map[string]bool // committed ones, by chain id
}

// parts are the parts of an image for the node's platform. A digest always has the same parts, so the Store caches
// them.
type parts struct {
	config   digest.Digest
	origin   string          // of its label, see ocimanifest.Build
	blobs    []digest.Digest // of index, manifest, config and layers
	snapshot string          // of the last layer, which implies the others; "" for another platform
}

// listContent lists blobs and snapshots.
func (c *session) listContent(ctx context.Context) (contents, error) {
	s := contents{blobs: map[digest.Digest]bool{}, snapshots: map[string]bool{}}
	err := c.client.ContentStore().Walk(ctx, func(i content.Info) error {
		s.blobs[i.Digest] = true
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("list content: %w", err)
	}
	name, err := c.snapshotterName(ctx)
	if err != nil {
		return s, err
	}
	err = c.client.SnapshotService(name).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if i.Kind == snapshots.KindCommitted {
			s.snapshots[i.Name] = true
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("list snapshots of %q: %w", name, err)
	}
	return s, nil
}

// isComplete reports whether all blobs for the node's platform are stored and the image
// is unpacked.
func (c *session) isComplete(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	stored, err := c.listContent(ctx)
	if err != nil {
		return false, err
	}
	parts, err := c.partsOf(ctx, stored, target)
	return stored.isComplete(parts), err
}

func (s contents) isComplete(p parts) bool {
	if p.snapshot == "" || !s.snapshots[p.snapshot] {
		return false
	}
	for _, blob := range p.blobs {
		if !s.blobs[blob] {
			return false
		}
	}
	return true
}

// partsOf returns the parts of an image, without blobs if its content is unreadable.
func (c *session) partsOf(ctx context.Context, stored contents, target ocispec.Descriptor) (parts, error) {
	if !stored.blobs[target.Digest] {
		return parts{}, nil
	}
	c.mu.Lock()
	p, ok := c.partsCache[target.Digest]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	p, err := c.readParts(ctx, target)
	if err != nil {
		return parts{config: p.config}, c.readError(ctx, target, err)
	}
	c.mu.Lock()
	c.partsCache[target.Digest] = p
	c.mu.Unlock()
	return p, nil
}

// readError returns containerd's own errors, and nil for content that is missing or not an image.
func (c *session) readError(ctx context.Context, target ocispec.Descriptor, err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errdefs.IsUnavailable(err):
		return err
	}
	c.log.Debug("cannot read the image content", "digest", target.Digest, "error", err)
	return nil
}

// readParts reads index, manifest and config of an image.
func (c *session) readParts(ctx context.Context, target ocispec.Descriptor) (parts, error) {
	store := c.client.ContentStore()
	config, err := images.Config(ctx, store, target, c.matcher)
	if err != nil {
		return parts{}, err
	}
	p := parts{config: config.Digest}
	platform, err := images.ConfigPlatform(ctx, store, config)
	if err != nil || !c.matcher.Match(platform) {
		return p, err
	}
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(store), c.matcher), c.matcher, 1)
	collect := func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		p.blobs = append(p.blobs, d.Digest)
		return children(ctx, d)
	}
	if err := images.Walk(ctx, images.HandlerFunc(collect), target); err != nil {
		return p, err
	}
	layers, err := images.RootFS(ctx, store, config)
	if err != nil {
		return p, err
	}
	body, err := content.ReadBlob(ctx, store, config)
	if err != nil {
		return p, err
	}
	p.origin = ocimanifest.Origin(body)
	p.snapshot = identity.ChainID(layers).String()
	return p, nil
}

// trimParts drops the cached parts of images without a record.
func (c *session) trimParts(records []images.Image) {
	named := make(map[digest.Digest]bool, len(records))
	for _, r := range records {
		named[r.Target.Digest] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.partsCache, func(d digest.Digest, _ parts) bool { return !named[d] })
}

// labelContent begins containerd's labels of a blob that name the blobs below it.
const labelContent = "containerd.io/gc.ref.content"

const (
	// maxBlobs limits the blobs of one image that are read.
	maxBlobs = 1000
	// maxVerified is the largest blob that Broken reads as a whole.
	maxVerified = 1 << 20
)

// BrokenBlob is a blob that containerd lists but cannot read: after a power cut, its metadata has outlived its file.
type BrokenBlob struct {
	Image  string // the name of the image record
	Digest digest.Digest
}

// AskBroken returns the blobs of the agent's pinned images that cannot be read, in the containerd behind a socket.
func AskBroken(ctx context.Context, socket, namespace string) (out []BrokenBlob, err error) {
	err = ask(ctx, socket, namespace, func(ctx context.Context, c *session) error {
		records, err := c.client.ImageService().List(ctx)
		if err != nil {
			return fmt.Errorf("list images: %w", err)
		}
		for _, r := range records {
			pin, ours := pinOf(r)
			if !ours {
				continue
			}
			blobs, err := c.broken(ctx, r.Target.Digest, maxVerified)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			for _, b := range blobs {
				out = append(out, BrokenBlob{digestName(release.Release{Repository: pin.Repository, Digest: pin.Digest}), b})
			}
		}
		return nil
	})
	return out, err
}

// repair deletes the blobs of a release that containerd lists but cannot read: no pull fetches a blob that is listed.
// It reports whether another pull may succeed. cause is why the last one failed.
func (c *session) repair(ctx context.Context, r release.Release, cause error) bool {
	_, registry := errors.AsType[*registryError](cause)
	_, space := errors.AsType[*spaceError](cause)
	if registry || space || errors.Is(withKind(cause), release.ErrNoSpace) || ctx.Err() != nil || c.isLost() {
		return false
	}
	blobs, err := c.broken(ctx, r.Digest, 0)
	if err == nil && len(blobs) > 0 {
		c.log.Warn("deleting content that containerd lists but cannot read", "release", digestName(r), "blobs", blobs)
		err = c.deleteBlobs(ctx, blobs)
	}
	if err != nil {
		c.log.Warn("cannot repair the content in containerd", "release", digestName(r), "blobs", blobs, "err", err)
	}
	return err == nil && len(blobs) > 0
}

func (c *session) isLost() bool { return c.link != nil && c.link.isLost() }

// deleteBlobs deletes the metadata of blobs, and then what is left of their files: while a file is there, containerd
// takes it for the new blob.
func (c *session) deleteBlobs(ctx context.Context, blobs []digest.Digest) error {
	for _, d := range blobs {
		if err := c.client.ContentStore().Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("content %s: %w", d, err)
		}
	}
	// containerd collects garbage before the deletion of a lease returns.
	l, err := c.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(leaseLife))
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	return c.deleteLease(ctx, l, leases.SynchronousDelete)
}

// broken returns the listed blobs of an image that cannot be read. Of a blob larger than limit, only the first and the
// last byte are read; 0: no limit.
func (c *session) broken(ctx context.Context, root digest.Digest, limit int64) ([]digest.Digest, error) {
	store := c.client.ContentStore()
	var out []digest.Digest
	seen := map[digest.Digest]bool{}
	for queue := []digest.Digest{root}; len(queue) > 0 && len(seen) < maxBlobs; queue = queue[1:] {
		d := queue[0]
		if seen[d] {
			continue
		}
		seen[d] = true
		info, err := store.Info(ctx, d)
		if errdefs.IsNotFound(err) {
			continue // a pull fetches it
		}
		if err != nil {
			return nil, fmt.Errorf("content %s: %w", d, err)
		}
		intact, err := isIntact(ctx, store, info, limit)
		if err != nil {
			return nil, fmt.Errorf("content %s: %w", d, err)
		}
		if !intact {
			out = append(out, d)
		}
		for label, child := range info.Labels {
			if d, err := digest.Parse(child); err == nil && strings.HasPrefix(label, labelContent) {
				queue = append(queue, d)
			}
		}
	}
	return out, nil
}

// isIntact reports whether a blob can be read, and has its digest. An error means that it is not known.
func isIntact(ctx context.Context, store content.Store, info content.Info, limit int64) (bool, error) {
	at, err := store.ReaderAt(ctx, ocispec.Descriptor{Digest: info.Digest, Size: info.Size})
	if err != nil {
		return false, unknown(err)
	}
	defer at.Close()
	if at.Size() != info.Size {
		return false, nil
	}
	if limit > 0 && info.Size > limit {
		for _, offset := range []int64{0, info.Size - 1} {
			if n, err := at.ReadAt(make([]byte, 1), offset); n < 1 {
				return false, unknown(err)
			}
		}
		return true, nil
	}
	verifier := info.Digest.Verifier()
	if _, err := io.Copy(verifier, io.NewSectionReader(at, 0, info.Size)); err != nil {
		return false, unknown(err)
	}
	return verifier.Verified(), nil
}

// unknown returns nil for an error that means that the file is gone or too short.
func unknown(err error) error {
	if errdefs.IsNotFound(err) || errdefs.IsOutOfRange(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// Unpacked is an image that containerd has unpacked.
type Unpacked struct {
	Layers []string          // directories, the uppermost first
	Labels map[string]string // of its config
}

// ErrNotHere: containerd does not have the image, or has not unpacked it.
var ErrNotHere = errors.New("the image is not on this node")

// WithUnpacked calls read with the unpacked image of a digest. Nothing is mounted, and containerd keeps the layers
// until read has ended.
func (s *Store) WithUnpacked(
	ctx context.Context, d digest.Digest, read func(context.Context, Unpacked) error,
) error {
	var ofReader error
	err := s.with(ctx, func(ctx context.Context, c *session) error {
		u, end, err := c.unpacked(ctx, d)
		if err != nil {
			return err
		}
		ofReader = read(ctx, u)
		return end()
	})
	return errors.Join(err, ofReader)
}

func (c *session) unpacked(ctx context.Context, d digest.Digest) (u Unpacked, end func() error, err error) {
	records, err := c.client.ImageService().List(ctx, "target.digest=="+d.String())
	if err != nil || len(records) == 0 {
		return u, nil, errors.Join(err, ErrNotHere)
	}
	store := c.client.ContentStore()
	config, err := images.Config(ctx, store, records[0].Target, c.matcher)
	if err != nil {
		return u, nil, err
	}
	body, err := content.ReadBlob(ctx, store, config)
	if err != nil {
		return u, nil, err
	}
	var image ocispec.Image
	if err := json.Unmarshal(body, &image); err != nil {
		return u, nil, fmt.Errorf("config of %s: %w", d, err)
	}
	u.Labels = image.Config.Labels
	if len(image.RootFS.DiffIDs) == 0 {
		return u, func() error { return nil }, nil
	}
	u.Layers, end, err = c.view(ctx, identity.ChainID(image.RootFS.DiffIDs).String())
	return u, end, err
}

// view returns the directories of a snapshot. containerd names them only for a view of it, which a lease removes if the
// program does not.
func (c *session) view(ctx context.Context, snapshot string) (dirs []string, end func() error, err error) {
	name, err := c.snapshotterName(ctx)
	if err != nil {
		return nil, nil, err
	}
	lease, err := c.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(callTimeout))
	if err != nil {
		return nil, nil, fmt.Errorf("lease: %w", err)
	}
	end = func() error {
		ctx, cancel := cleanup(ctx)
		defer cancel()
		return c.deleteLease(ctx, lease, leases.SynchronousDelete)
	}
	mounts, err := c.client.SnapshotService(name).View(leases.WithLease(ctx, lease.ID), "view-"+lease.ID, snapshot)
	if err == nil {
		dirs, err = directories(mounts)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("snapshotter %q: %w", name, err), end())
	}
	return dirs, end, nil
}

// directories returns what mounts would show, if these are directories one above the other.
func directories(mounts []mount.Mount) ([]string, error) {
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		return []string{mounts[0].Source}, nil
	}
	if len(mounts) == 1 && mounts[0].Type == "overlay" {
		for _, option := range mounts[0].Options {
			if lower, is := strings.CutPrefix(option, "lowerdir="); is {
				return strings.Split(lower, ":"), nil
			}
		}
	}
	return nil, errors.New("keeps layers in a form that cannot be read without a mount")
}
