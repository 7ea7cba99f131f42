// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"time"
)

// The names of holds. They are an interface: scripts and dashboards match them.
const (
	HoldWithheld  = "withheld"  // an image of the pod is unresolved
	HoldBusy      = "busy"      // another operation owns the node
	HoldUnmanaged = "unmanaged" // the pod manifest is not ours to change
	HoldEdited    = "edited"    // somebody edited a file of ours whose template is gone
	HoldRefused   = "refused"   // a restart would start what a rule refuses
	HoldAsked     = "hold"      // a person, or the configuration, wants nothing applied
	HoldDisk      = "disk"      // no room for a pull on the image filesystem
	HoldFreeze    = "freeze"    // the configuration wants nothing applied before a date
	// What only an apply without a person's yes waits for.
	HoldWindow       = "window"        // no maintenance window is open
	HoldControlPlane = "control-plane" // etcd and kube-apiserver are for a person, node by node
	HoldFailed       = "failed"        // it was tried, and did not come up
)

// AsReason is a hold as a reason of the node's: of a pod manifest, or of an image.
func (h Hold) AsReason(file, image string) Reason {
	return Reason{
		Kind: KindHold, PodManifest: file, Image: image, Hold: h.Name, Until: h.Until,
		Text: cmp.Or(file, image) + ": " + h.Name + ": " + h.Reason,
	}
}

// Hold is a named reason not to act now.
type Hold struct {
	Name   string `json:"name"`   // stable word: "update-in-progress", "withheld", "unmanaged" ...
	Reason string `json:"reason"` // for people
	// Until is when it ends by itself, as Reason says; zero: nobody knows.
	Until time.Time `json:"until,omitzero"`
	// Image is the repository that HoldAsked, HoldWithheld and HoldRefused are about; "*": all of them.
	Image string `json:"image,omitempty"`
	// By is who wants HoldAsked: ByPerson or ByConfiguration.
	By string `json:"by,omitempty"`
	// Grain is the grain of HoldBusy; empty: the grains could not be read.
	Grain string `json:"grain,omitempty"`
}

// Who can want that nothing is applied.
const (
	ByPerson        = "person"
	ByConfiguration = "configuration"
)
