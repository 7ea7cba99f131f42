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

// ImageStore is what staging needs of the node's image store.
type ImageStore interface {
	// Stage pulls a release by digest for the node's platform, unpacks it, names it by its long
	// tag (by its digest where it has none) and pins it. It fetches only missing content. Safe
	// for concurrent use with different releases. ErrNoSpace where the disk was full.
	Stage(ctx context.Context, r release.Release, t StageOptions) error
	// Pins makes want the set of the agent's pins, as far as the digests are on the node. It does
	// not touch pins that are in want already.
	Pins(ctx context.Context, want []release.Pin) error
	// Prune removes image records that still name the same digest, with the content that no other
	// record and no container uses.
	Prune(ctx context.Context, gone []HeldImage) error
}

// ImageNamer gives images names.
type ImageNamer interface {
	// Name gives a digest the name repository@digest, by which CRI finds it without a registry.
	// ErrNotFound where the node does not have the whole image.
	Name(ctx context.Context, p release.Pin) error
	// Restore makes a record that names no image (HeldImage.NotImage) name a digest. ErrConflict
	// where the record was changed since was; ErrNotFound where the node does not have the whole
	// image.
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
	// CheckSpace is called once the sizes are known and before a layer is fetched. Its error ends
	// the staging.
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
	// Lists reports whether CRI lists an image of that name, and its image id (config digest).
	// kubelet finds the images that CRI lists.
	Lists(ctx context.Context, name string) (digest.Digest, bool, error)
	// Filesystem is the filesystem of the runtime's images.
	Filesystem(ctx context.Context) (policy.Filesystem, error)
}

// ImagePuller pulls images through CRI.
type ImagePuller interface {
	// Pull makes CRI pull a reference, as kubelet does, and returns the image id.
	Pull(ctx context.Context, ref release.Reference) (digest.Digest, error)
}

// ContainerStopper stops and removes containers.
type ContainerStopper interface {
	// Stop stops a container within its grace and removes it. kubelet restarts a removed container
	// at once, and an ended one after a growing back-off.
	Stop(ctx context.Context, containerID string, grace time.Duration) error
	// Clear removes the containers of a sandbox that is down.
	Clear(ctx context.Context, sandboxID string) error
}

// Sandboxes are the pod sandboxes of the node.
type Sandboxes interface {
	// SandboxReady reports whether a sandbox exists and is up.
	SandboxReady(ctx context.Context, sandboxID string) (bool, error)
	// Address is the IP of a sandbox; empty where it uses the host's network.
	Address(ctx context.Context, sandboxID string) (string, error)
}

// Pods is the node's container runtime as kubelet uses it.
type Pods interface {
	ContainerLister
	ContainerStopper
	ImagePuller
	ImageService
	Sandboxes
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

// PodFileWriter writes pod manifests.
type PodFileWriter interface {
	// Write replaces a file of kubelet's directory. ErrConflict where it is no longer as read
	// (was.Data nil: it does not exist).
	Write(ctx context.Context, was PodFile, data []byte) error
	// Remove deletes a file of kubelet's directory. ErrConflict where it is no longer as read.
	Remove(ctx context.Context, was PodFile) error
	// Keep stores a rendered file until it is approved; nil data deletes it.
	Keep(ctx context.Context, name string, data []byte) error
}

// PodFileMover sets pod manifests aside for a moment.
type PodFileMover interface {
	// SetAside moves a file out of kubelet's directory until it is written or put back.
	// ErrConflict where it is no longer as read.
	SetAside(ctx context.Context, was PodFile) error
	// PutBack restores the files that were set aside and not written since, and names them.
	PutBack(ctx context.Context) (names []string, err error)
}

// PodFiles are the directories of pod manifests on the node.
type PodFiles interface {
	PodFileReader
	PodFileWriter
	PodFileMover
}
