// SPDX-License-Identifier: Apache-2.0

package status

import "github.com/opencontainers/go-digest"

// ReleaseState is what a node does with a release.
type ReleaseState string

// The states. If the containers of a node differ, the first state counts.
const (
	ReleaseFailed   ReleaseState = "failed"   // it did not become healthy, does not run any more, or was rolled back
	ReleaseHeld     ReleaseState = "held"     // a hold blocks also an apply by a person
	ReleaseOffered  ReleaseState = "offered"  // it is not staged yet
	ReleaseStaged   ReleaseState = "staged"   // it waits for an approval, a window, the lock or its time in a rollout
	ReleaseStarting ReleaseState = "starting" // kubelet has not started it yet, or it has not been verified
	ReleaseRunning  ReleaseState = "running"  // it has passed its health check
)

// ReleaseStates returns all states, in that order.
func ReleaseStates() []ReleaseState {
	return []ReleaseState{
		ReleaseFailed, ReleaseHeld, ReleaseOffered, ReleaseStaged, ReleaseStarting, ReleaseRunning,
	}
}

// ReleaseStatus is the state of one release on the node. A release is listed once, whatever number of containers it is
// for.
type ReleaseStatus struct {
	Image  string        `json:"image"` // repository
	Tag    string        `json:"tag"`   // its best name
	Digest digest.Digest `json:"digest"`
	State  ReleaseState  `json:"state"`
}
