// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/kubic-project/image-update-agent/agent/status"

// Standing is the outcome of an apply of the pod at this moment. Status, plan and apply share it.
type Standing struct {
	// Result is nothing, held or failed; empty if the offer only waits for an approval.
	Result    status.Result
	Reason    string
	Hold      string
	ErrorKind status.ErrorKind
	Staged    bool // all images are on the node
	Ours      bool // the agent manages the pod manifest
}

// Standing returns the outcome of an apply of the pod at this moment.
func (p *PodPlan) Standing() Standing {
	at := Standing{Staged: true, Ours: !p.IsUnmanaged()}
	switch {
	case p.Err != nil:
		at.Result, at.Reason, at.ErrorKind = status.ResultFailed, p.Err.Error(), status.ErrorKindOf(p.Err)
	case p.BlocksOffer() || p.Change != "" && len(p.Holds) > 0:
		at.Result, at.Hold, at.Reason = status.ResultHeld, p.Holds[0].Name, p.Holds[0].Name+": "+p.Holds[0].Reason
	case p.Change == "":
		at.Result = status.ResultNothing
	case !p.Ready:
		at.Result, at.Reason, at.Staged = status.ResultHeld, "not staged yet", false
	}
	return at
}
