// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/kubic-project/image-update-agent/agent/status"

// Standing is what an apply of a pod would come to now. Status, plan and apply all ask
// it, so that they give one answer.
type Standing struct {
	// Result is empty where the offer only waits for an approval, else what an apply
	// ends with: nothing, held or failed.
	Result status.Result
	Reason string
	// Hold and ErrorKind are as in Outcome.
	Hold      string
	ErrorKind status.ErrorKind
	Staged    bool // nothing of it is missing on the node
	// Ours: it is not just somebody else's pod manifest that has something newer.
	Ours bool
}

// Standing is what an apply of the pod would come to now.
func (p *PodPlan) Standing() Standing {
	at := Standing{Staged: true, Ours: !p.isHeld(status.HoldUnmanaged)}
	switch {
	case p.Err != nil:
		at.Result, at.Reason, at.ErrorKind = status.ResultFailed, p.Err.Error(), status.ErrorKindOf(p.Err)
	case p.Withheld() || p.Change != "" && len(p.Holds) > 0:
		at.Result, at.Hold, at.Reason = status.ResultHeld, p.Holds[0].Name, p.Holds[0].Name+": "+p.Holds[0].Reason
	case p.Change == "":
		at.Result = status.ResultNothing
	case !p.Ready:
		at.Result, at.Reason, at.Staged = status.ResultHeld, "not staged yet", false
	}
	return at
}
