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
	// Stage pulls a release by digest for the node's platform, unpacks it, names
	// it by its long tag (by its digest where it has none) and pins it. What is
	// there already is not fetched again. Safe for concurrent use, for different
	// releases. ErrNoSpace where the disk was full.
	Stage(ctx context.Context, r release.Release, t StageOptions) error
	// Pins replaces the set of our pins: a pin for each of want that is held,
	// none for any other. Pins that want keeps are not touched.
	Pins(ctx context.Context, want []release.Pin) error
	// Prune removes image records, each only while it still names the digest that
	// was seen. What no other record and no container needs goes with them.
	Prune(ctx context.Context, gone []HeldImage) error
}

// ImageNamer gives images names.
type ImageNamer interface {
	// Name gives a digest that the node holds complete the name repository@digest,
	// by which CRI finds it without a registry; else ErrNotFound.
	Name(ctx context.Context, p release.Pin) error
}

// Images is the node's image store.
type Images interface {
	ImageRecords
	ImageStore
	ImageNamer
}

// StageOptions are what a staging has to keep to. The zero value has none.
type StageOptions struct {
	// Progress hears how far it is; nil: nobody does. It is called from one
	// goroutine at a time.
	Progress func(status.Progress)
	// CheckSpace is asked when it is known what a pull would bring and before a layer is
	// fetched; its error ends the staging. nil: there is always room.
	CheckSpace func(ctx context.Context, n policy.SpaceNeeded) error
}

// ContainerLister lists the containers of the node.
type ContainerLister interface {
	// Containers lists the containers of static pods, the newest attempt of each,
	// and the image ids (config digests) that any container of the node uses,
	// those that have ended and those of other pods included.
	Containers(ctx context.Context) (static []Container, used []digest.Digest, err error)
}

// ImageService is CRI's view of the images.
type ImageService interface {
	// Lists reports whether CRI shows an image of that name, and its image id
	// (config digest): the proof that kubelet will find what was staged.
	Lists(ctx context.Context, name string) (digest.Digest, bool, error)
	// Filesystem is where the runtime keeps its images.
	Filesystem(ctx context.Context) (policy.Filesystem, error)
}

// ImagePuller pulls images through CRI.
type ImagePuller interface {
	// Pull lets CRI pull a reference, as kubelet would, and returns the image id.
	Pull(ctx context.Context, ref release.Reference) (digest.Digest, error)
}

// ContainerStopper stops containers, and removes what has ended.
type ContainerStopper interface {
	// Stop ends a container and removes it, so that kubelet starts it anew, and at
	// once: one that it finds ended it lets wait, ever longer. The container has the
	// grace to end by itself.
	Stop(ctx context.Context, containerID string, grace time.Duration) error
	// Clear removes the containers of a sandbox that is down, for the same reason.
	Clear(ctx context.Context, sandboxID string) error
}

// Sandboxes are the pod sandboxes of the node.
type Sandboxes interface {
	// SandboxReady reports whether a pod's sandbox is up. One that is not there is
	// not.
	SandboxReady(ctx context.Context, sandboxID string) (bool, error)
	// Address is the IP of a sandbox; empty where it has none of its own.
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
	// Templates lists what the packages ship.
	Templates(ctx context.Context) ([]PodFile, error)
	// PodManifests lists kubelet's directory.
	PodManifests(ctx context.Context) ([]PodFile, error)
	// Waiting lists the rendered files that wait for approval.
	Waiting(ctx context.Context) ([]PodFile, error)
}

// PodFileWriter writes pod manifests.
type PodFileWriter interface {
	// Write replaces a file of kubelet's directory with data if it still is what
	// was read (was.Data nil: it does not exist yet); else ErrConflict.
	Write(ctx context.Context, was PodFile, data []byte) error
	// Remove deletes a file of kubelet's directory if it still is what was read.
	Remove(ctx context.Context, was PodFile) error
	// Keep stores a rendered file until it is approved; nil data drops it.
	Keep(ctx context.Context, name string, data []byte) error
}

// PodFileMover sets pod manifests aside for a moment.
type PodFileMover interface {
	// SetAside takes a file out of kubelet's sight if it still is what was read,
	// else ErrConflict, until it is written anew or put back.
	SetAside(ctx context.Context, was PodFile) error
	// PutBack ends every setting aside: what was not written anew is where it was
	// again, and named.
	PutBack(ctx context.Context) (names []string, err error)
}

// PodFiles are the directories of pod manifests on the node.
type PodFiles interface {
	PodFileReader
	PodFileWriter
	PodFileMover
}
