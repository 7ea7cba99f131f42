// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Result is the result of an apply or a rollback of a pod manifest.
type Result string

// The results.
const (
	ResultApplied    Result = "applied" // CRI shows the offer running
	ResultNothing    Result = "nothing" // nothing to apply, or no rollback target
	ResultHeld       Result = "held"    // there is a hold
	ResultFailed     Result = "failed"  // the pod did not come up
	ResultRolledBack Result = "rolled back"
	ResultWouldApply Result = "would apply" // of a dry run: an apply would restart the pod
	ResultCanceled   Result = "canceled"    // the caller left before the restart, which ended its approval
	ResultContinues  Result = "continues"   // the caller left after the restart began; the restart continues
	ResultPickedUp   Result = "picked up"   // in the history: kubelet started it, and it passed its health check
)

// ChangeRollback is the change of a rollback.
const ChangeRollback = "rollback"

// Outcome is the result of an apply or a rollback of one pod manifest.
type Outcome struct {
	PodManifest string `json:"podManifest" dbus:"podManifest"`
	Change      string `json:"change" dbus:"change"`
	Result      Result `json:"result" dbus:"result"`
	Reason      string `json:"reason" dbus:"reason,long"`
	// Hold is the name of the hold, ErrorKind the kind of the error; empty if there is none.
	Hold      string    `json:"hold" dbus:"hold"`
	ErrorKind ErrorKind `json:"errorKind" dbus:"errorKind"`
	// Edits are the planned changes of the pod manifest.
	Edits []Edit `json:"edits,omitempty"`
}

// SetError sets the result for an error: held if it only has to wait, else failed.
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
	From      string `json:"from"`  // for an image, its release; "" if absent
	To        string `json:"to"`
}
