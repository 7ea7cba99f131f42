// SPDX-License-Identifier: Apache-2.0

package manifests

import "time"

// Kind is the kind of place that names an image.
type Kind string

// Kubelet pulls the images of the first four kinds. The last two are text with an image for another program (kubelet's
// --pod-infra-container-image, an operator's environment): the agent reports them and never edits them.
const (
	KindContainer   Kind = "container"
	KindInit        Kind = "initContainer"
	KindEphemeral   Kind = "ephemeralContainer"
	KindVolume      Kind = "volume"
	KindArgument    Kind = "argument"
	KindEnvironment Kind = "environment"
)

// Image is one place that names an image.
type Image struct {
	Path       string // "spec.containers[0].image", within its document
	Document   int    // 0 is the one that kubelet runs
	Line       int    // of the value, or of its container if it has no value; from 1
	Column     int    // in characters, from 1
	Container  string // name of the container, or of the volume
	Kind       Kind
	Reference  string // as written; in a text only the part that names the image
	PullPolicy string // as written, "" if absent
	Editable   bool   // the reference can be replaced
	Reason     string // one of the Reason words, "" if Editable
}

// Pod holds the fields of a pod manifest about images, readiness and termination.
type Pod struct {
	Name      string
	Namespace string  // "default" if absent, as in kubelet
	Component string  // control-plane component by kubeadm's labels: etcd, kube-apiserver, ...; "" if none
	Role      string  // control-plane role by name, labels or program: RoleEtcd, RoleAPIServer, ...; "" if none
	Images    []Image // ordered by document, then containers, init containers, ephemeral containers, volumes

	Probes      []Probe       // of the regular containers, then of sidecars, in order: startup, liveness, readiness
	HostNetwork bool          // the pod uses the host's network
	Once        bool          // restartPolicy Never or OnFailure: kubelet does not restart a container that succeeded
	Never       bool          // restartPolicy Never: kubelet does not restart a container that failed, either
	Grace       time.Duration // terminationGracePeriodSeconds: from SIGTERM to SIGKILL
}
