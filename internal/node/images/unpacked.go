// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

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
