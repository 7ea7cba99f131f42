// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Pins sets the agent's pins to want: it adds missing ones and removes the others. A wanted digest without a record
// must be staged first and is left out. Pins also deletes the remains of interrupted stagings of releases that are not
// wanted.
func (s *Store) Pins(ctx context.Context, want []release.Pin) error {
	return s.with(ctx, func(ctx context.Context, c *session) error {
		if err := c.pins(ctx, want); err != nil {
			return err
		}
		if err := c.pruneLeases(ctx, want); err != nil {
			c.log.Warn("cannot delete the leases in containerd, they will expire", "error", err)
		}
		return nil
	})
}

func (c *session) pins(ctx context.Context, want []release.Pin) error {
	service := c.client.ImageService()
	records, err := service.List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	add, drop := planPins(records, want)
	// Add before dropping: a digest that changes its repository stays pinned.
	for _, record := range add {
		if err := c.writeRecord(ctx, record); err != nil {
			return fmt.Errorf("pin %s: %w", record.Name, err)
		}
	}
	for _, record := range drop {
		if err := service.Delete(ctx, record.Name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("pin %s: %w", record.Name, err)
		}
	}
	return nil
}

// planPins compares the records with the wanted pins.
func planPins(records []images.Image, want []release.Pin) (add, drop []images.Image) {
	missing := map[release.Pin]bool{}
	for _, pin := range want {
		missing[pin] = true
	}
	held := map[digest.Digest]images.Image{}
	for _, record := range records {
		held[record.Target.Digest] = record
		pin, ours := pinOf(record)
		if !ours {
			continue
		}
		if _, wanted := missing[pin]; !wanted {
			drop = append(drop, record)
			continue
		}
		// A pin without its labels does not stop the garbage collector.
		missing[pin] = record.Labels[labelPinned] != pinned || record.Labels[labelManaged] != managed
	}
	for _, pin := range want {
		if target, ok := held[pin.Digest]; ok && missing[pin] {
			add = append(add, pinRecord(pin.Repository, target))
			missing[pin] = false
		}
	}
	return add, drop
}

// writeRecord creates or replaces a record.
func (c *session) writeRecord(ctx context.Context, record images.Image) error {
	service := c.client.ImageService()
	_, err := service.Create(ctx, record)
	if errdefs.IsAlreadyExists(err) {
		_, err = service.Update(ctx, record)
	}
	return err
}
