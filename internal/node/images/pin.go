// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// pinHost is the registry host in the names of pins. CRI lists every record, so a pin must parse as a reference; no
// registry can own a name in ".local".
const pinHost = "pin.image-update-agent.local"

// maxHex is the length of a digest in a pin's name: all of a SHA-256. A SHA-512 would fill the 128 characters of a tag.
const maxHex = 64

const (
	// labelManaged stops CRI from adding a record for the config digest, which no program
	// would remove.
	labelManaged, managed = "io.cri-containerd.image", "managed"
	// labelPinned protects from kubelet's garbage collector (containerd 1.7 and later).
	labelPinned, pinned = "io.cri-containerd.pinned", "pinned"
	// labelRepository holds the repository of a pin.
	labelRepository = "org.opensuse.image-update-agent/repository"
	// labelStaged has the repository of a record that staging wrote and pruning may remove. A CRI pull of the same name
	// removes the label: then the record is CRI's.
	labelStaged = "org.opensuse.image-update-agent/staged"
	// labelStage has the release of a lease of the agent.
	labelStage = "org.opensuse.image-update-agent/stage"
)

// pinName returns the name of a pin: unique, and a reference that CRI accepts.
func pinName(repository string, d digest.Digest) string {
	return pinHost + "/" + pinPath(repository) + ":" + pinTag(d)
}

// pinPath converts a repository to a path. The colon of a port becomes "_", which paths may contain and host names do
// not. Names that are not valid paths (upper case, an IPv6 address, a long name) are hashed, and so is a "host" with a
// "_". No host is called "hashed": the host of a normalised repository has a dot or a port, or is "localhost".
func pinPath(repository string) string {
	host, _, _ := strings.Cut(repository, "/")
	path := strings.Replace(repository, ":", "_", 1)
	name := pinHost + "/" + path
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || named.String() != name || strings.Contains(host, "_") ||
		len(name) > reference.RepositoryNameTotalLengthMax {
		return "hashed/" + digest.FromString(repository).Encoded()
	}
	return path
}

func pinTag(d digest.Digest) string {
	hex := d.Encoded()
	return d.Algorithm().String() + "-" + hex[:min(len(hex), maxHex)]
}

// pinRecord returns the record of a pin on target.
func pinRecord(repository string, target images.Image) images.Image {
	return images.Image{
		Name:   pinName(repository, target.Target.Digest),
		Target: target.Target,
		Labels: map[string]string{labelManaged: managed, labelPinned: pinned, labelRepository: repository},
	}
}

// pinOf reads a record. It is a pin only if name, label and target agree, because labels can be copied.
func pinOf(record images.Image) (release.Pin, bool) {
	repository, ok := record.Labels[labelRepository]
	d := record.Target.Digest
	if !ok || d.Validate() != nil || record.Name != pinName(repository, d) {
		return release.Pin{}, false
	}
	return release.Pin{Repository: repository, Digest: d}, true
}

// stagedOf reads a record. It was written by staging only if label and name agree, because labels can be copied.
func stagedOf(record images.Image) (repository string, ok bool) {
	repository, ok = record.Labels[labelStaged]
	if !ok {
		return "", false
	}
	r := release.Release{Repository: repository, Digest: record.Target.Digest}
	if long, tagged := strings.CutPrefix(record.Name, repository+":"); tagged {
		r.Long = long
	}
	if checkRelease(r) != nil || r.StagedName() != record.Name {
		return "", false
	}
	return repository, true
}

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

// Held lists all image records of the namespace. A record with unreadable content has
// no Config and is not Complete.
func (s *Store) Held(ctx context.Context) ([]node.HeldImage, error) {
	var held []node.HeldImage
	err := s.with(ctx, func(ctx context.Context, c *session) (err error) {
		held, err = c.held(ctx)
		return err
	})
	return held, err
}

func (c *session) held(ctx context.Context) ([]node.HeldImage, error) {
	records, err := c.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	stored, err := c.listContent(ctx)
	if err != nil {
		return nil, err
	}
	held := make([]node.HeldImage, 0, len(records))
	for _, record := range records {
		image := node.HeldImage{Name: record.Name, Digest: record.Target.Digest}
		parts, err := c.partsOf(ctx, stored, record.Target)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", record.Name, err)
		}
		image.Config, image.Origin, image.NotImage = parts.config, parts.origin, notImage(record.Target)
		if pin, ok := pinOf(record); ok {
			image.Pin, image.Repository = true, pin.Repository
			image.MediaType, image.Size = record.Target.MediaType, record.Target.Size
			image.Complete = stored.isComplete(parts)
		} else {
			image.Repository, image.Staged = stagedOf(record)
		}
		held = append(held, image)
	}
	c.trimParts(records)
	return held, nil
}

// Prune removes image records, each only if it still has the given digest: a tag that was pulled since stays. It
// returns when containerd has freed the blobs and snapshots that nothing else refers to.
//
// A container that runs from a pruned image continues to run, but can only be restarted with a registry: callers must
// not pass images that a container uses.
func (s *Store) Prune(ctx context.Context, gone []node.HeldImage) error {
	return s.with(ctx, func(ctx context.Context, c *session) error { return c.prune(ctx, gone) })
}

func (c *session) prune(ctx context.Context, gone []node.HeldImage) error {
	records, err := c.unchanged(ctx, gone)
	if err != nil {
		return err
	}
	for n, record := range records {
		// Servers before 2.0 ignore the condition; there, unchanged must suffice.
		opts := []images.DeleteOpt{images.DeleteTarget(&record.Target)}
		if n == len(records)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		err := c.client.ImageService().Delete(ctx, record.Name, opts...)
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("image %s: %w", record.Name, err)
		}
	}
	return nil
}

// unchanged returns the records that still have the observed digest.
func (c *session) unchanged(ctx context.Context, seen []node.HeldImage) ([]images.Image, error) {
	var records []images.Image
	for _, h := range seen {
		record, err := c.client.ImageService().Get(ctx, h.Name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", h.Name, err)
		case record.Target.Digest == h.Digest:
			records = append(records, record)
		}
	}
	return records, nil
}
