// SPDX-License-Identifier: Apache-2.0

package release

import "context"

// Question is the source's input for one followed image.
type Question struct {
	Repository string
	// Tag is the higher tag of template and pod manifest. Empty: a placeholder without a
	// value, which follows the newest tag.
	Tag string
	// Convert: the agent renders the pod manifest and converts a short tag to its intermediate tag. Otherwise the tag
	// is followed as written.
	Convert bool
	// Kubeadm: the image belongs to a control plane of kubeadm.
	Kubeadm bool
}

// String returns the text for people and the key in the record.
func (q Question) String() string {
	s := q.Repository
	if q.Tag != "" {
		s += ":" + q.Tag
	}
	if q.Kubeadm {
		s += KubeadmSuffix
	}
	if !q.Convert {
		s += AsWrittenSuffix
	}
	return s
}

// KubeadmSuffix marks the questions of a control plane of kubeadm.
const KubeadmSuffix = " (kubeadm)"

// AsWrittenSuffix marks the questions of pod manifests that the agent does not render.
const AsWrittenSuffix = " (as written)"

type askingKey struct{}

// WithAsking returns a context whose source calls asking before it sends a request: one that must wait for its host
// does not ask.
func WithAsking(ctx context.Context, asking func()) context.Context {
	return context.WithValue(ctx, askingKey{}, asking)
}

// Asking tells who wants to know that a request is sent.
func Asking(ctx context.Context) {
	if asking, ok := ctx.Value(askingKey{}).(func()); ok {
		asking()
	}
}
