// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// historian adds to the history how a restart has ended.
type historian struct{ *restart }

// approver is who approved the step.
func (h historian) approver() status.Actor {
	switch approval, ok := h.Records.Record.Approved[h.step.File]; {
	case h.step.Apply.Auto:
		return status.Actor{Kind: status.ByAuto}
	case ok && approval.By.Kind != "":
		return approval.By
	default:
		return status.Actor{Kind: status.ByPerson} // an agent without the field recorded the approval
	}
}

// note adds how an apply or a proof has ended to the history, for each container that does not run what ran well
// before. It is called before the record changes.
func (h historian) note(result status.Result, by status.Actor, cause error) {
	rec := &h.Records.Record
	var entries []status.HistoryEntry
	for _, e := range h.step.Apply.Expect {
		good := rec.Good[record.GoodKey(h.step.File, e.Container)]
		if rec.IsGood(good, e.Ref.Repository, e.Digest, e.Config) {
			continue
		}
		entry := h.entry(e, result, by, cause)
		if good.Running != "" {
			entry.From = rec.NameOf(good.Repository, good.Running)
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		entries = append(entries, h.entry(plan.Expectation{}, result, by, cause))
	}
	rec.History.Add(entries)
}

// noteRollback adds how a rollback has ended to the history, for each container that it changes.
func (h historian) noteRollback(o record.Override, err error) {
	result, by, cause := status.ResultRolledBack, o.By, err
	switch {
	case err != nil:
		result = status.ResultFailed
	case !o.ByHand:
		cause = &release.ProofError{Reason: o.Reason}
	}
	if !o.ByHand {
		by = status.Actor{Kind: status.ByAgent}
	} else if by.Kind == "" {
		by = status.Actor{Kind: status.ByPerson}
	}
	var entries []status.HistoryEntry
	for _, e := range h.step.Apply.Expect {
		if from := o.Images[e.Place()].Replaces; from != "" {
			entry := h.entry(e, result, by, cause)
			entry.From, entry.Change = from, status.ChangeRollback
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 { // an agent without the field recorded the override
		entry := h.entry(plan.Expectation{}, result, by, cause)
		entry.Change = status.ChangeRollback
		entries = append(entries, entry)
	}
	h.Records.Record.History.Add(entries)
}

func (h historian) entry(e plan.Expectation, result status.Result, by status.Actor, cause error) status.HistoryEntry {
	entry := status.HistoryEntry{
		At: h.Now().UTC(), PodManifest: h.step.File, Change: h.step.Apply.Change, Container: e.Container,
		Image: e.Ref.Repository, To: cmp.Or(e.Name, e.Digest.String()), Digest: e.Digest, Result: result, By: by,
	}
	if cause != nil {
		entry.Cause, entry.Reason = status.ErrorKindOf(cause), cause.Error()
	}
	return entry
}
