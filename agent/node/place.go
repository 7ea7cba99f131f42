// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/kubic-project/image-update-agent/manifests"

// IsContainer reports whether CRI shows what becomes of an image: a volume's
// runs nothing, and may have a container's name.
func IsContainer(i manifests.Image) bool {
	return i.Kind == manifests.KindContainer || i.Kind == manifests.KindInit
}

const PullNever = "Never"

// PullPolicyOf is what kubelet goes by, who reads Always where nothing is written and
// the tag is latest, or there is none.
func PullPolicyOf(i manifests.Image) string {
	if i.PullPolicy != "" {
		return i.PullPolicy
	}
	if ref := manifests.SplitReference(i.Reference); ref.Digest == "" && (ref.Tag == "" || ref.Tag == "latest") {
		return manifests.PullAlways
	}
	return manifests.PullIfNotPresent
}

// PlaceOf names an image's place by its container: a template that puts a new
// container first moves all the others.
func PlaceOf(i manifests.Image) string { return string(i.Kind) + " " + i.Container }

// Pulled reports whether kubelet pulls the image by a tag that can be asked for:
// it stands in a container or volume of the first document, and is a reference
// that is not pinned to a digest.
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
