// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/kubic-project/image-update-agent/manifests"

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
