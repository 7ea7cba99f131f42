// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

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

// ErrUnknownImage: a name given by a person fits no tracked image.
var ErrUnknownImage = errors.New("no pod manifest uses it")

// Apply approves what is staged for the named images (all, where none is
// named) and carries it out. A name is a repository, the end of one after a
// slash, or a pod manifest's file name. retry: what did not come up before is
// tried again.
func (a *Agent) Apply(ctx context.Context, names []string, retry bool) ([]Outcome, Status, error) {
	outcomes, done, err := a.apply(ctx, names, retry)
	return outcomes, done.status, err
}

func (a *Agent) apply(ctx context.Context, names []string, retry bool) ([]Outcome, done, error) {
	if retry {
		if err := a.allow(ctx, names); err != nil {
			return nil, done{}, err
		}
	}
	pods, d, err := a.wanted(ctx, names)
	if err != nil {
		return nil, done{}, err
	}
	outcomes, approved := a.approve(pods, d.results)
	if len(approved) == 0 {
		if retry {
			d, err = a.cycle(ctx, errand{person: true}) // what was denied is not any more
		}
		return outcomes, d, err
	}
	// Saved before the first act: a crash in the middle goes on where it was.
	if err := a.records.Commit(ctx); err != nil {
		return nil, done{}, err
	}
	for _, p := range approved {
		a.announceChange(Progress{Reference: p.File, Phase: phaseChanging, Edits: p.Edits})
	}
	d, err = a.cycle(ctx, errand{person: true})
	for n := range outcomes {
		if outcomes[n].Result == "" {
			a.outcome(&outcomes[n], d.results)
		}
	}
	if err == nil && d.results.hasTagMoved() {
		d, err = a.askAfterMove(ctx, d)
	}
	return outcomes, d, err
}

// approve records an approval of each pod that can be applied. It returns what becomes
// of the others; the result of those that are approved is open.
func (a *Agent) approve(pods []PodPlan, staged results) (outcomes []Outcome, approved []PodPlan) {
	outcomes = make([]Outcome, 0, len(pods))
	for _, p := range pods {
		at := p.Standing()
		o := Outcome{
			PodManifest: p.File, Change: p.Change, Result: at.Result, Reason: at.Reason, Hold: at.Hold, ErrorKind: at.ErrorKind,
		}
		switch {
		case at.Result == ResultHeld && !at.Staged:
			if err := unstagedBy(p, staged); err != nil {
				o.Reason, o.ErrorKind = o.Reason+": "+err.Error(), ErrorKindOf(err)
			}
		case at.Result == "":
			a.records.Record.Approved.Set(p.File, p.approval(a.Now()))
			o.Edits = p.Edits
			approved = append(approved, p)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, approved
}

// announceChange reports what is about to change.
func (a *Agent) announceChange(p Progress) {
	if a.Progress != nil {
		a.Progress(p)
	}
}

// askAfterMove polls after an apply whose floating tag was moved meanwhile, so
// that what the tag names now can be approved. Where a person interrupts the poll,
// the status stays that of the apply, which is done.
func (a *Agent) askAfterMove(ctx context.Context, applied done) (done, error) {
	again, err := a.cycle(ctx, errand{poll: PollAll})
	if cut, is := errors.AsType[*interruption](err); is {
		applied.unfinished = cut
		return applied, nil
	}
	return again, err
}

// allow takes back the denials of the named images.
func (a *Agent) allow(ctx context.Context, names []string) error {
	plan, err := a.Plan(ctx, PollNone)
	if err != nil {
		return err
	}
	pods, err := pick(plan, names)
	if err != nil {
		return err
	}
	for _, p := range pods {
		a.records.Record.Allow(p.File, p.releases())
	}
	return a.records.Commit(ctx)
}

// wanted are the pod manifests that use the named images. Where one is not ready
// because the node has lost what was staged, as to the garbage collection of a
// containerd that knows no pins, it is staged again first: who waits for an apply
// should not have to ask twice. Then done is what that came to.
func (a *Agent) wanted(ctx context.Context, names []string) (pods []PodPlan, d done, err error) {
	plan, err := a.Plan(ctx, PollNone)
	if err == nil {
		pods, err = pick(plan, names)
	}
	if err != nil || !slices.ContainsFunc(pods, isUnstaged) {
		return pods, d, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.needs()...)
	}
	d, err = a.cycle(ctx, errand{person: true, needs: needs})
	if err == nil {
		plan, err = a.Plan(ctx, PollNone)
	}
	if err == nil {
		pods, err = pick(plan, names)
	}
	return pods, d, err
}

// unstagedBy is why a pod's images are not staged, where that is known.
func unstagedBy(p PodPlan, staged results) error {
	for _, need := range p.needs() {
		if err := staged.err(need); err != nil {
			return err
		}
	}
	return nil
}

// isUnstaged reports whether a pod's offer lacks nothing but its images.
func isUnstaged(p PodPlan) bool {
	at := p.Standing()
	return at.Result == ResultHeld && !at.Staged
}

// end is that of an error: it waits, or did not work.
func (o *Outcome) end(err error) {
	o.Result, o.Reason, o.ErrorKind = ResultFailed, err.Error(), ErrorKindOf(err)
	if isWaiting(err) {
		o.Result = ResultHeld
	}
}

// outcome reads from the cycle that has just ended what became of an approval.
func (a *Agent) outcome(o *Outcome, all results) {
	err := all.err(o.PodManifest)
	_, pending := a.records.Record.Approved[o.PodManifest]
	switch {
	case err != nil:
		o.end(err)
	case pending:
		o.Result, o.Reason = ResultHeld, "interrupted: it goes on at the next start"
	case !all.isApplied(o.PodManifest):
		o.Result, o.Reason = ResultHeld, "the offer has changed meanwhile"
	default:
		o.Result = ResultApplied
		if unchecked := all.unchecked(o.PodManifest); len(unchecked) > 0 {
			o.Reason = "readiness not checked: " + strings.Join(unchecked, ", ")
		}
	}
}

// pick finds the pods that use the named images.
func pick(plan Plan, names []string) ([]PodPlan, error) {
	if len(names) == 0 {
		return plan.Pods, nil
	}
	hit := map[string]bool{}
	for _, name := range names {
		found := false
		for _, p := range plan.Pods {
			if p.File == name || slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return isNamed(i, name) }) {
				hit[p.File], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknownImage)
		}
	}
	return slices.DeleteFunc(slices.Clone(plan.Pods), func(p PodPlan) bool { return !hit[p.File] }), nil
}

func isNamed(i ImagePlan, name string) bool {
	return i.Want.Ask.Repository != "" && isRepository(i.Want.Ask.Repository, name)
}

// isRepository compares with what a person gives: a repository, or the end of one.
func isRepository(repository, name string) bool {
	return repository == name || strings.HasSuffix(repository, "/"+name)
}

// approval is an approval of exactly the pod's offer.
func (p *PodPlan) approval(now time.Time) Approval {
	return Approval{At: now, Offer: p.Offer, Well: !slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return !i.Well && i.Want.Image.Kind == manifests.KindContainer && i.Want.OnDisk.Repository != ""
	})}
}

// releases are those that a pod runs or is offered.
func (p *PodPlan) releases() []string {
	var out []string
	for _, i := range p.Images {
		for _, rel := range i.Offer.known() {
			out = append(out, releaseKey(i.Want.Ask.Repository, rel.Digest))
		}
		out = append(out, releaseKey(i.Want.Ask.Repository, i.Running.Digest))
	}
	return out
}
