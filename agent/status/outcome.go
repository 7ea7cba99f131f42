// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Result is how an apply or a rollback of a pod manifest ended.
type Result string

// The results.
const (
	ResultApplied    Result = "applied" // CRI shows the offer running
	ResultNothing    Result = "nothing" // there was nothing to apply, or no rollback target
	ResultHeld       Result = "held"    // there is a hold
	ResultFailed     Result = "failed"  // the pod did not come up
	ResultRolledBack Result = "rolled back"
	ResultCanceled   Result = "canceled"  // the caller left before it began, and its approval with it
	ResultContinues  Result = "continues" // the caller left; it had begun, and goes on
	ResultAdopted    Result = "adopted"   // in the history: kubelet started it, and it was proved
)

// ChangeRollback is the change of a rollback.
const ChangeRollback = "rollback"

// Outcome is the result of an apply or a rollback of one pod manifest.
type Outcome struct {
	PodManifest string `json:"podManifest"`
	Change      string `json:"change"`
	Result      Result `json:"result"`
	Reason      string `json:"reason"`
	// Hold is the name of the hold, ErrorKind the kind of the error; empty: there is none.
	Hold      string    `json:"hold"`
	ErrorKind ErrorKind `json:"errorKind"`
	// Edits are the planned changes of the pod manifest.
	Edits []Edit `json:"edits,omitempty"`
}

// SetError sets the result of an error: held if it only has to wait, else failed.
func (o *Outcome) SetError(err error) {
	o.Result, o.Reason, o.ErrorKind = ResultFailed, err.Error(), ErrorKindOf(err)
	if release.IsWaiting(err) {
		o.Result = ResultHeld
	}
	if h, is := errors.AsType[*release.HoldError](err); is {
		o.Hold = h.Hold
	}
}

// The fields of a pod manifest that the agent changes.
const (
	EditImage      = "image"
	EditPullPolicy = "imagePullPolicy"
)

// Edit is a change of one container or volume of a pod manifest.
type Edit struct {
	Container string `json:"container"`
	Field     string `json:"field"` // EditImage or EditPullPolicy
	From      string `json:"from"`  // of an image, its release; "": absent
	To        string `json:"to"`
}
