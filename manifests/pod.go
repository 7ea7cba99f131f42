// SPDX-License-Identifier: Apache-2.0

package manifests

import "time"

// Kind is the sort of place that names an image.
type Kind string

// The first four are what kubelet pulls. The last two are text that carries an
// image for another program (kubelet's --pod-infra-container-image, an operator's
// environment): reported, never edited.
const (
	KindContainer   Kind = "container"
	KindInit        Kind = "initContainer"
	KindEphemeral   Kind = "ephemeralContainer"
	KindVolume      Kind = "volume"
	KindArgument    Kind = "argument"
	KindEnvironment Kind = "environment"
)

// Why an image, or its pull policy, is not edited. The words are part of the
// machine interface.
const (
	ReasonDigest        = "digest-pinned"       // a digest is written: its author wants exactly this image
	ReasonEmpty         = "empty"               // no image field, or one without value
	ReasonNotString     = "not-a-string"        // a number, list, mapping or private tag
	ReasonNotReference  = "not-a-reference"     // not in the grammar of image references
	ReasonBlockScalar   = "block-scalar"        // image: | or image: >
	ReasonSeveralLines  = "several-lines"       // a value that spans lines
	ReasonShared        = "shared-anchor"       // an anchor gives the value to a place that would differ or is no image
	ReasonArgument      = "argument"            // in command or args
	ReasonEnvironment   = "environment"         // in env
	ReasonLaterDocument = "later-document"      // behind the first document, which alone is run
	ReasonNoTag         = "no-known-tag"        // no tag is known for the repository; what is written stays
	ReasonPolicyNever   = "pull-policy-never"   // an explicit Never says that the image is brought by other means
	ReasonPolicyShared  = "pull-policy-shared"  // an anchor or merge key gives it, or its place, to others too
	ReasonPolicyUnknown = "pull-policy-unknown" // a pull policy that is none of kubelet's
)

// Image is one place that names an image.
type Image struct {
	Path       string // "spec.containers[0].image", in its document
	Document   int    // 0 is the one that kubelet runs
	Line       int    // of the value, or of its container where it has none; from 1
	Column     int    // in characters, from 1
	Container  string // name of the container, or of the volume
	Kind       Kind
	Reference  string // as written; for text only the part that names the image
	PullPolicy string // as written, "" if absent
	Editable   bool   // the reference may be replaced
	Reason     string // one of the Reason words, "" if Editable
}

// Pod is what a pod manifest says about its images, and how the pod serves and
// ends.
type Pod struct {
	Name      string
	Namespace string  // "default" if none is written, as kubelet has it
	Component string  // of the control plane, by the labels that kubeadm writes: etcd, kube-apiserver, ...; "" for none
	Role      string  // in a control plane, by name, labels or program: RoleEtcd, RoleAPIServer, ...; "" for none
	Images    []Image // in order of document and of containers, init containers, ephemeral containers, volumes

	Probes      []Probe       // for readiness, of the containers that have one, in their order; not of init containers
	HostNetwork bool          // the pod has the host's addresses
	Once        bool          // restartPolicy Never or OnFailure: what has ended well is not started again
	Grace       time.Duration // from the request to end until containers are killed
}
