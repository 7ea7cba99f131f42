// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"time"
)

// The names of holds. They are part of the machine interface.
const (
	HoldWithheld  = "withheld"  // an image of the pod is unresolved
	HoldBusy      = "busy"      // another operation owns the node
	HoldUnmanaged = "unmanaged" // the agent may not change the pod manifest
	HoldEdited    = "edited"    // a file of ours was edited by hand, and its template is gone
	HoldRefused   = "refused"   // a restart would start what a rule refuses
	HoldRequested = "hold"      // a person or the configuration set a hold
	HoldDisk      = "disk"      // too little space for a pull on the image filesystem
	HoldFreeze    = "freeze"    // the configuration allows no apply before a date
	HoldSet       = "set"       // a release of the same set is not staged
	HoldLock      = "lock"      // another node has the lock of the fleet, or its server does not answer
	HoldQuorum    = "quorum"    // another member of the control plane is not healthy
	// Only automatic applies wait for these.
	HoldWindow       = "window"        // no maintenance window is open
	HoldControlPlane = "control-plane" // etcd and kube-apiserver need a person's approval
	HoldFailed       = "failed"        // the release did not come up before
	HoldCatalog      = "catalog"       // the catalog has expired
	HoldRollout      = "rollout"       // the node's time in the rollout has not come
)

// AsReason returns the reason for the node's state, for a pod manifest or an image.
func (h Hold) AsReason(file, image string) Reason {
	return Reason{
		Kind: KindHold, PodManifest: file, Image: image, Hold: h.Name, Until: h.Until,
		Text: cmp.Or(file, image) + ": " + h.Name + ": " + h.Reason,
	}
}

// Hold is a named reason not to apply now.
type Hold struct {
	Name   string `json:"name"`   // HoldWithheld ...
	Reason string `json:"reason"` // for people
	// Until is when it ends by itself; zero: not known.
	Until time.Time `json:"until,omitzero"`
	// Image is the repository that HoldRequested, HoldWithheld and HoldRefused are about; "*": all of them.
	Image string `json:"image,omitempty"`
	// By is who set HoldRequested: ByPerson or ByConfiguration.
	By string `json:"by,omitempty"`
	// Grain is the grain of HoldBusy; empty: the grains could not be read.
	Grain string `json:"grain,omitempty"`
}
