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
	if retry {
		if err := a.allow(ctx, names); err != nil {
			return nil, Status{}, err
		}
	}
	pods, s, missing, err := a.wanted(ctx, names)
	if err != nil {
		return nil, Status{}, err
	}
	outcomes := make([]Outcome, 0, len(pods))
	var approved []PodPlan
	for _, p := range pods {
		o := Outcome{PodManifest: p.File, Change: p.Change}
		switch at := p.Standing(); at.Result {
		case ResultHeld:
			o.Result, o.Reason = at.Result, at.Reason
			if !at.Staged {
				o.Reason += because(p, missing)
			}
		case "":
			a.record.approve(p, a.Now())
			o.Edits = p.Edits
			approved = append(approved, p)
		default:
			o.Result, o.Reason = at.Result, at.Reason
		}
		outcomes = append(outcomes, o)
	}
	if len(approved) == 0 {
		if retry {
			s, err = a.cycleFor(ctx, errand{person: true}) // what was denied is not any more
		}
		return outcomes, s, err
	}
	// Kept before the first act: a crash in the middle goes on where it was.
	if err := a.commit(ctx); err != nil {
		return nil, Status{}, err
	}
	for _, p := range approved {
		a.tell(Progress{Reference: p.File, Phase: phaseChanging, Edits: p.Edits})
	}
	s, err = a.cycleFor(ctx, errand{person: true})
	for n := range outcomes {
		if outcomes[n].Result == "" {
			a.outcome(&outcomes[n])
		}
	}
	if err == nil && a.moved {
		s, err = a.askAfterMove(ctx, s)
	}
	return outcomes, s, err
}

// askAfterMove polls after an apply whose floating tag was moved meanwhile, so
// that what the tag names now can be approved. Where a person interrupts the poll,
// the status stays that of the apply, which is done.
func (a *Agent) askAfterMove(ctx context.Context, applied Status) (Status, error) {
	again, err := a.Cycle(ctx, PollAll)
	if cut, is := errors.AsType[*Interruption](err); is {
		a.unfinished = cut
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
		a.record.allow(p)
	}
	return a.commit(ctx)
}

// commit keeps a person's word. One that cannot be kept does not hold either.
func (a *Agent) commit(ctx context.Context) error {
	err := a.save(ctx)
	if err != nil {
		a.loaded = false
	}
	return err
}

// wanted are the pod manifests that use the named images. Where one is not ready
// because the node has lost what was staged, as to the garbage collection of a
// containerd that knows no pins, it is staged again first: who waits for an apply
// should not have to ask twice. Then s is the status after that, and missing is
// why something could not be staged, by release.
func (a *Agent) wanted(
	ctx context.Context, names []string,
) (pods []PodPlan, s Status, missing map[string]error, err error) {
	plan, err := a.Plan(ctx, PollNone)
	if err == nil {
		pods, err = pick(plan, names)
	}
	if err != nil || !slices.ContainsFunc(pods, isUnstaged) {
		return pods, s, nil, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.needs()...)
	}
	s, err = a.cycleFor(ctx, errand{person: true, needs: needs})
	missing = a.errs // the plan begins with none
	if err == nil {
		plan, err = a.Plan(ctx, PollNone)
	}
	if err == nil {
		pods, err = pick(plan, names)
	}
	return pods, s, missing, err
}

// because tells why a pod's images are not staged, where that is known.
func because(p PodPlan, errs map[string]error) string {
	for _, need := range p.needs() {
		if err := errs[need]; err != nil {
			return ": " + err.Error()
		}
	}
	return ""
}

// isUnstaged reports whether a pod's offer lacks nothing but its images.
func isUnstaged(p PodPlan) bool {
	at := p.Standing()
	return at.Result == ResultHeld && !at.Staged
}

// outcome reads from the cycle that has just ended what became of an approval.
func (a *Agent) outcome(o *Outcome) {
	err := a.errs[o.PodManifest]
	_, pending := a.record.Approved[o.PodManifest]
	switch {
	case waits(err):
		o.Result, o.Reason = ResultHeld, err.Error()
	case err != nil:
		o.Result, o.Reason = ResultFailed, err.Error()
	case pending:
		o.Result, o.Reason = ResultHeld, "interrupted: it goes on at the next start"
	case !a.applied[o.PodManifest]:
		o.Result, o.Reason = ResultHeld, "the offer has changed meanwhile"
	default:
		o.Result = ResultApplied
		if doubts := a.doubts[o.PodManifest]; doubts != "" {
			o.Reason = "readiness not checked: " + doubts
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

// approve keeps a yes to exactly this offer.
func (r *Record) approve(p PodPlan, now time.Time) {
	if r.Approved == nil {
		r.Approved = map[string]Approval{}
	}
	r.Approved[p.File] = Approval{At: now, Offer: p.Offer, Well: !slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return !i.Well && i.Want.Image.Kind == manifests.KindContainer && i.Want.OnDisk.Repository != ""
	})}
}
