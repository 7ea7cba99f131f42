// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// approver returns who approved the step.
func (a *attempt) approver() status.Actor {
	rec := &a.Records.Record
	switch approval, ok := rec.Approved[a.step.File]; {
	case a.step.Apply.Auto:
		return status.Actor{Kind: status.ByAuto}
	case ok && approval.By.Kind != "":
		return approval.By
	case rec.Sets[rec.SetOf(a.step.File)].By.Kind != "": // a pod of its set was applied before
		return rec.Sets[rec.SetOf(a.step.File)].By
	default:
		return status.Actor{Kind: status.ByPerson} // an agent without the field recorded the approval
	}
}

// noteEnd adds the end of an apply or a health check to the history, for each container that does not run its last
// known good release. In a failed step, the containers that ran before may have become healthy. It is called before the
// record changes.
func (a *attempt) noteEnd(result status.Result, by status.Actor, cause error) {
	rec := &a.Records.Record
	var entries []status.HistoryEntry
	for _, e := range a.step.Apply.Expect {
		good := rec.Good[record.GoodKey(a.step.File, e.Container)]
		if rec.IsGood(good, e.Ref.Repository, e.Digest, e.Config) {
			continue
		}
		entry := a.historyEntry(e, result, by, cause)
		if release.IsDown(cause) && !a.worse && !slices.Contains(a.step.Apply.Broken, e.Container) {
			entry = a.historyEntry(e, status.ResultApplied, by, nil)
		}
		if good.Running != "" {
			entry.From = rec.NameOf(good.Repository, good.Running)
			entry.Reason = a.withContradiction(entry.Reason, e, good)
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		entries = append(entries, a.historyEntry(plan.Expectation{}, result, by, cause))
	}
	rec.History.Add(entries)
}

// withContradiction adds to a reason that name and time of a release contradict those of the previous one.
func (a *attempt) withContradiction(reason string, e plan.Expectation, good record.Good) string {
	rec := &a.Records.Record
	text := policy.Contradiction(
		rec.Releases[release.Key(good.Repository, good.Running)], rec.Releases[release.Key(e.Ref.Repository, e.Digest)],
		a.Policy.RuleFor(e.Ref.Repository).Scheme, a.Now(),
	)
	if reason != "" && text != "" {
		reason += "; "
	}
	return reason + text
}

// noteRollback adds the end of a rollback to the history, for each container that it changes.
func (a *attempt) noteRollback(o record.Override, err error) {
	result, by, cause := status.ResultRolledBack, o.By, err
	switch {
	case err != nil:
		result = status.ResultFailed
	case o.Set != "":
		cause = &release.HoldError{Hold: status.HoldSet, Err: errors.New(o.Reason)}
	case !o.ByHand:
		cause = &release.UnhealthyError{Reason: o.Reason}
	}
	if !o.ByHand {
		by = status.Actor{Kind: status.ByAgent}
	} else if by.Kind == "" {
		by = status.Actor{Kind: status.ByPerson}
	}
	var entries []status.HistoryEntry
	for _, e := range a.step.Apply.Expect {
		if from := o.Images[e.Place()].Replaces; from != "" {
			entry := a.historyEntry(e, result, by, cause)
			entry.From, entry.Change = from, status.ChangeRollback
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 { // an agent without the field recorded the override
		entry := a.historyEntry(plan.Expectation{}, result, by, cause)
		entry.Change = status.ChangeRollback
		entries = append(entries, entry)
	}
	a.Records.Record.History.Add(entries)
}

func (a *attempt) historyEntry(
	e plan.Expectation, result status.Result, by status.Actor, cause error,
) status.HistoryEntry {
	entry := status.HistoryEntry{
		At: a.Now().UTC(), PodManifest: a.step.File, Change: a.step.Apply.Change, Container: e.Container,
		Image: e.Ref.Repository, To: cmp.Or(e.Name, e.Digest.String()), Digest: e.Digest, Result: result, By: by,
	}
	if cause != nil {
		entry.Cause, entry.Reason = status.ErrorKindOf(cause), cause.Error()
	}
	return entry
}
