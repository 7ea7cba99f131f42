// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ImageRecords are the image records of containerd.
type ImageRecords interface {
	// Held lists the image records of the namespace.
	Held(ctx context.Context) ([]HeldImage, error)
}

// ImageStore has the operations for staging on the node's image store.
type ImageStore interface {
	// Stage pulls a release by digest for the node's platform, unpacks it, names it by its long tag (or by its digest
	// if it has none) and pins it. It fetches only missing content. It is safe for concurrent use with different
	// releases. It returns ErrNoSpace if the disk was full.
	Stage(ctx context.Context, r release.Release, t StageOptions) error
	// Pins sets the agent's pins to want, as far as the node has the digests. It does not touch pins that are already
	// in want.
	Pins(ctx context.Context, want []release.Pin) error
	// Prune removes image records that still have the same digest, and their content unless another record or a
	// container uses it.
	Prune(ctx context.Context, gone []HeldImage) error
}

// ImageNamer names images.
type ImageNamer interface {
	// Name gives an image the name repository@digest, so that CRI finds it without a registry. It returns ErrNotFound
	// if the node does not have the whole image.
	Name(ctx context.Context, p release.Pin) error
	// Restore points a broken record (HeldImage.NotImage) at a digest. It returns ErrConflict if the record has changed
	// since was; ErrNotFound if the node does not have the whole image.
	Restore(ctx context.Context, was HeldImage, d digest.Digest) error
}

// Images is the node's image store.
type Images interface {
	ImageRecords
	ImageStore
	ImageNamer
}

// StageOptions are the optional callbacks of Stage.
type StageOptions struct {
	// Progress is called from one goroutine at a time.
	Progress func(status.Progress)
	// CheckSpace is called when the sizes are known and before a layer is fetched. Its error ends the staging.
	CheckSpace func(ctx context.Context, n policy.SpaceNeeded) error
}

// ContainerLister lists the containers of the node.
type ContainerLister interface {
	// Containers lists the containers of static pods, the newest attempt of each, and the image
	// ids (config digests) that any container of the node uses, ended ones included.
	Containers(ctx context.Context) (static []Container, used []digest.Digest, err error)
}

// ImageService is CRI's view of the images.
type ImageService interface {
	// Lists reports whether CRI lists an image with that name, and its image id (config digest). kubelet finds the
	// images that CRI lists.
	Lists(ctx context.Context, name string) (digest.Digest, bool, error)
	// Filesystem is the filesystem of the runtime's images.
	Filesystem(ctx context.Context) (policy.Filesystem, error)
}

// Pods is the node's container runtime as kubelet uses it.
type Pods interface {
	ContainerLister
	ImageService

	// Pull makes CRI pull a reference, as kubelet does, and returns the image id.
	Pull(ctx context.Context, ref release.Reference) (digest.Digest, error)
	// Stop stops a container within its grace period and removes it. kubelet restarts a removed container at once, and
	// an ended one after a growing back-off.
	Stop(ctx context.Context, containerID string, grace time.Duration) error
	// Clear removes the containers of a sandbox that is down.
	Clear(ctx context.Context, sandboxID string) error
	// SandboxReady reports whether a sandbox exists and is up.
	SandboxReady(ctx context.Context, sandboxID string) (bool, error)
	// Address returns the IP of a sandbox; empty if it uses the host's network.
	Address(ctx context.Context, sandboxID string) (string, error)
}

// PodFileReader reads the directories of pod manifests.
type PodFileReader interface {
	// Templates lists the templates that packages ship.
	Templates(ctx context.Context) ([]PodFile, error)
	// PodManifests lists kubelet's directory.
	PodManifests(ctx context.Context) ([]PodFile, error)
	// Waiting lists the rendered files that wait for approval.
	Waiting(ctx context.Context) ([]PodFile, error)
}

// PodFiles are the directories of pod manifests on the node.
type PodFiles interface {
	PodFileReader

	// Write replaces a file of kubelet's directory. It returns ErrConflict if the file is not as read (was.Data nil: it
	// did not exist).
	Write(ctx context.Context, was PodFile, data []byte) error
	// Remove deletes a file of kubelet's directory. It returns ErrConflict if the file is not as read.
	Remove(ctx context.Context, was PodFile) error
	// Keep stores a rendered file until it is approved; nil data deletes it.
	Keep(ctx context.Context, name string, data []byte) error
	// SetAside moves a file out of kubelet's directory until it is written or put back. It returns ErrConflict if the
	// file is not as read.
	SetAside(ctx context.Context, was PodFile) error
	// PutBack restores the files that were set aside and not written since, and returns their names.
	PutBack(ctx context.Context) (names []string, err error)
}
