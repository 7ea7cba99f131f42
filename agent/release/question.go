// SPDX-License-Identifier: Apache-2.0

package release

// Question is what the source is asked about one followed image.
type Question struct {
	Repository string
	// Tag is where to start from: the tag in the template or in the pod manifest,
	// whichever is higher. Empty: a placeholder without a value, so the newest.
	Tag string
	// Convert: the pod manifest is ours to render, so a short tag is to become
	// its intermediate tag. Otherwise the tag is followed as it stands.
	Convert bool
	// Kubeadm: the image is of a control plane that kubeadm has set up.
	Kubeadm bool
}

// String is the question for people, and as a key of the record.
func (q Question) String() string {
	s := q.Repository
	if q.Tag != "" {
		s += ":" + q.Tag
	}
	if q.Kubeadm {
		s += OfKubeadm
	}
	if !q.Convert {
		s += AsWritten
	}
	return s
}

// OfKubeadm marks the questions of a control plane of kubeadm.
const OfKubeadm = " (kubeadm)"

// AsWritten marks the questions of pod manifests that are not ours to render.
const AsWritten = " (as written)"
