// SPDX-License-Identifier: Apache-2.0

package status

// Result is how an approval ended for one pod manifest.
type Result string

// The results of an apply.
const (
	ResultApplied Result = "applied" // CRI shows the offer running
	ResultNothing Result = "nothing" // there was nothing to apply, or to go back to
	ResultHeld    Result = "held"    // a named reason speaks against it now
	ResultFailed  Result = "failed"  // it was tried and did not come up
	ResultBack    Result = "rolled back"
)

// Outcome is what became of one pod manifest that was to be applied.
type Outcome struct {
	PodManifest string `json:"podManifest"`
	Change      string `json:"change"`
	Result      Result `json:"result"`
	Reason      string `json:"reason"`
	// Hold is the name of the hold that speaks against it, ErrorKind what went wrong or
	// has to wait; both empty where Result says it all.
	Hold      string    `json:"hold"`
	ErrorKind ErrorKind `json:"errorKind"`
	// Edits are what the apply, or the rollback, was to change.
	Edits []Edit `json:"edits,omitempty"`
}
