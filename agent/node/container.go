// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
)

// Container is a container of a static pod, as CRI shows it.
type Container struct {
	ID        string // CRI's id, for Stop
	Sandbox   string // CRI's pod sandbox id
	Pod       string // pod name with the node's suffix: velum-node1
	Namespace string
	Name      string // container name in the pod manifest
	Running   bool   // false: created or exited
	StartedAt time.Time
	// FinishedAt, ExitCode, Reason and Message are set for an ended container. Reason is the runtime's: Completed,
	// Error, OOMKilled, StartError, Unknown.
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string
	Restarts   uint32          // the attempt number: 0 is the first start
	Image      digest.Digest   // config digest
	Digests    []digest.Digest // of the index or manifest, as CRI has them
}

// Succeeded reports whether a container has ended without an error.
func (c Container) Succeeded() bool { return !c.Running && !c.StartedAt.IsZero() && c.ExitCode == 0 }

// HeldImage is one image record of containerd.
type HeldImage struct {
	Name   string        // repository:tag, repository@digest, or a pin of the agent
	Digest digest.Digest // the record's target
	Pin    bool          // the agent's pin
	Staged bool          // staging created the name, and no other client has pulled it since
	// Repository is set for a pin or a staged name; empty for others.
	Repository string
	// Complete: all blobs for the node's platform are there and unpacked. Only set for pins.
	Complete bool
	Config   digest.Digest // of the node's platform; empty if the content is missing
	Origin   string        // see release.Build; empty if there is none, or if the content is missing
	// MediaType and Size in bytes are of the manifest or index itself. Only set for pins.
	MediaType string
	Size      int64
	// NotImage is the media type of a record that is not an image, for example after a pull from a login page
	// ("text/html"); empty for an image.
	NotImage string
}

// Waiting is a container that kubelet does not start, with the reason.
type Waiting struct {
	Namespace string
	Pod       string // with the node's suffix, as CRI has it: velum-node1
	Container string
	Reason    string // ContainerCreating, ErrImagePull, CrashLoopBackOff ...
	Message   string
}

// IsContainer reports whether an image belongs to a container of CRI. An image of a volume runs nothing, and may have
// the name of a container.
func IsContainer(i manifests.Image) bool {
	return i.Kind == manifests.KindContainer || i.Kind == manifests.KindInit
}

// PullNever is kubelet's pull policy that pulls nothing.
const PullNever = "Never"

// PullPolicyOf returns kubelet's pull policy for an image. The default is Always if the tag is latest, also
// next to a digest, or if there is neither (pkg/apis/core/v1/defaults.go, SetDefaults_Container).
func PullPolicyOf(i manifests.Image) string {
	if i.PullPolicy != "" {
		return i.PullPolicy
	}
	ref := manifests.SplitReference(i.Reference)
	if ref.Tag == "latest" || ref.Tag == "" && ref.Digest == "" {
		return manifests.PullAlways
	}
	return manifests.PullIfNotPresent
}

// PlaceOf identifies an image's place by its container, because a new first container shifts the indices.
func PlaceOf(i manifests.Image) string { return string(i.Kind) + " " + i.Container }

// Pulled reports whether kubelet pulls an image by a tag: it belongs to a container or volume of the first document,
// and has no digest.
func Pulled(i manifests.Image) bool {
	switch i.Kind {
	case manifests.KindContainer, manifests.KindInit, manifests.KindEphemeral, manifests.KindVolume:
	default:
		return false
	}
	switch i.Reason {
	case manifests.ReasonDigest, manifests.ReasonEmpty, manifests.ReasonNotString, manifests.ReasonNotReference:
		return false
	default:
		return i.Document == 0
	}
}
