// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Agent does the cycles. Its fields are what it needs from the world; all are
// required but Preconditions, Readiness, Inhibitor, Pacer, Verifier, Meter, Events,
// Progress and Jitter. It is not safe for concurrent use: Loop serialises.
type Agent struct {
	Source        Source
	Images        Images
	Pods          Pods
	Files         PodFiles
	Announcer     Announcer
	Recorder      Recorder
	Preconditions Preconditions // of an apply; nil: none but the agent's own
	Readiness     Readiness     // nil: what runs is ready
	Inhibitor     Inhibitor     // nil: nobody is asked to wait
	Pacer         Pacer         // of Source; nil: it has none
	Verifier      Verifier      // nil: nobody verifies
	Meter         Meter         // nil: nobody counts
	Events        RuntimeEvents // nil: containers are seen at the next observation only
	Policy        Policy
	Log           *slog.Logger
	Now           func() time.Time
	// Progress hears of long work and of each step; may be nil.
	Progress func(Progress)
	// Jitter gives numbers from [0,1), another one each time; nil: at random.
	Jitter  func() float64
	Version string // of the agent, for the status

	record Record
	loaded bool
	parsed parsedPods // of the last observation
	// nextObservation is the loop's: when the node is observed next, if nothing causes
	// that earlier; nil: nobody observes it.
	nextObservation func(Status) time.Time
	// schedule is the loop's: when it polls next; nil: nobody polls. unasked is what
	// it is told: something is followed for which no source was asked yet.
	schedule func(retries []time.Time, unasked bool) time.Time
	unasked  bool
	watched  *watched             // the loop's; nil: nobody watches
	missing  map[string]time.Time // since when containers are missed, by "file/container"
	cycle    string               // the running cycle's id, in every line of the log
	count    uint64               // of cycles since the start
	applied  map[string]bool      // pod manifests applied in this cycle
	fell     map[string]bool      // releases that did not come up in this cycle
	lags     bool                 // the API server was to be applied in this cycle, and was not
	slow     bool                 // the pod that was taken down did not go in time
	moved    bool                 // a tag has moved on under what was to be applied
	doubts   map[string]string    // containers whose readiness nobody could check, by pod manifest
	dropped  []Dropped            // what could not be kept since the last poll
	errs     map[string]error     // what did not work in this cycle, by pod manifest or release

	people     *queue           // the loop's: whose requests go first; nil: nobody's
	half       *inquiry         // a poll that was interrupted: what it has heard
	unfinished *Interruption    // what an apply could not wait for
	deferred   map[string]bool  // what this cycle leaves to the next: releases to stage, pod manifests to apply or prove
	unstaged   map[string]error // why releases could not be staged when that was tried last

	watch   stopwatch  // of the restart under way
	telling sync.Mutex // held while Progress hears
	told    Progress   // the last it has heard
	// Pulls run side by side; what they share stands behind this.
	pulls   sync.Mutex
	coming  map[string]Need  // what the pulls under way bring, by release
	wanting map[string]Need  // what releases need for which there was no room, since the last poll
	least   map[string]int64 // bytes that are not enough for releases whose pull filled the disk
}

// maxRounds bounds how often a cycle plans and acts, see isNext.
const maxRounds = 3

// Cycle looks, asks, decides and does, once. It returns what the node is like
// afterwards. Its error is of the cycle itself (the node could not be looked
// at, the record not be kept); what went wrong with one image or pod stands in
// the status, and stops no other. An Interruption is no failure: the cycle is to be
// done again.
func (a *Agent) Cycle(ctx context.Context, poll Poll) (Status, error) {
	return a.cycleFor(ctx, errand{poll: poll})
}

// errand is what a cycle is for.
type errand struct {
	poll   Poll
	person bool     // a person waits for its steps: it stages only what they need
	needs  []string // releases
}

// stages tells whether a release is staged in this cycle.
func (e errand) stages(release string) bool { return !e.person || slices.Contains(e.needs, release) }

func (a *Agent) cycleFor(ctx context.Context, e errand) (Status, error) {
	if !e.person || a.unstaged == nil {
		a.unstaged = map[string]error{}
	}
	if err := a.begin(ctx, e.poll); err != nil {
		return a.unseen(ctx, err)
	}
	if err := a.putBack(ctx); err != nil {
		return a.unseen(ctx, err)
	}
	inv, err := a.inventory(ctx)
	if err != nil {
		return a.unseen(ctx, err)
	}
	offers, cut := a.ask(ctx, inv, e)
	if cut != nil {
		a.saveSoon(ctx, "") // a reload goes on with another agent
		return Status{}, cut
	}
	plan := a.decide(ctx, inv, offers)
	last := context.WithoutCancel(ctx) // the last word of a cycle is always said
	for again, rounds := true, 0; again && rounds < maxRounds && len(plan.Steps) > 0; rounds++ {
		if cut := a.carry(ctx, e, plan.Steps); cut != nil {
			a.saveSoon(last, "") // its answers are not asked for again
			return Status{}, cut
		}
		if err := a.putBack(last); err != nil {
			return a.unseen(last, err) // a pod manifest that is set aside is no pod that has gone
		}
		if inv, err = a.inventory(last); err != nil {
			return a.unseen(last, err)
		}
		offers = a.standing(inv, offers)
		plan = a.decide(last, inv, offers)
		again = ctx.Err() == nil && slices.ContainsFunc(plan.Steps, a.isNext)
	}
	return a.report(last, inv, offers, plan)
}

// isNext reports whether a step can be done in this cycle still: what was staged in it
// is applied without anybody's yes, what a pod that was rolled back is offered is
// staged, and kept, and what the node was too busy for is written.
func (a *Agent) isNext(s Step) bool {
	switch {
	case s.Do == StepDrop:
		return true // also where the pod manifest's other steps have failed
	case a.errs[s.key()] != nil || a.lacks(s) != "":
		return false
	case (s.Do == StepStage || s.Do == StepApply) && a.deferred[s.key()]:
		return false
	case s.Do == StepApply:
		return s.Apply.Auto && !a.applied[s.File]
	case s.Do == StepProve:
		return a.applied[s.File] // what an apply that was cut short had left to prove
	}
	return s.Do == StepStage || s.Do == StepKeep || s.Do == StepWrite
}

// Plan is what the next cycle would do if it ran now, having asked as poll
// says. It changes nothing on the node and keeps nothing.
func (a *Agent) Plan(ctx context.Context, poll Poll) (Plan, error) {
	if err := a.begin(ctx, poll); err != nil {
		return Plan{}, err
	}
	inv, err := a.inventory(ctx)
	if err != nil {
		return Plan{}, err
	}
	views := survey(inv, a.record.Overrides, a.Policy)
	offers := a.offers(ctx, newInquiry(a, inv, views, poll), questions(views, a.Policy), false)
	return a.decide(ctx, inv, offers), nil
}

// decide plans. What the node has against an apply is asked only where there is
// one to hold: the question starts services that run on demand.
func (a *Agent) decide(ctx context.Context, inv Inventory, offers map[Question]Offer) Plan {
	plan := Decide(inv, offers, a.record, a.Policy, a.Now())
	if a.Readiness != nil && plan.isDown() {
		var err error
		if inv.Unstarted, err = a.Readiness.Waiting(ctx); err != nil {
			a.Log.Debug("kubelet does not say why containers wait", "cycle", a.cycle, "err", err)
		}
		plan = Decide(inv, offers, a.record, a.Policy, a.Now())
	}
	if a.Preconditions == nil || !slices.ContainsFunc(plan.Pods, func(p PodPlan) bool { return p.Change != "" }) {
		return plan
	}
	if inv.Against = a.Preconditions.Holds(ctx); len(inv.Against) > 0 {
		plan = Decide(inv, offers, a.record, a.Policy, a.Now())
	}
	return plan
}

// begin readies what one cycle remembers.
func (a *Agent) begin(ctx context.Context, poll Poll) error {
	a.count++
	a.cycle = strconv.FormatUint(a.count, 10)
	a.applied, a.errs = map[string]bool{}, map[string]error{}
	a.fell, a.deferred = map[string]bool{}, map[string]bool{}
	a.lags, a.moved, a.doubts = false, false, map[string]string{}
	a.coming = map[string]Need{}
	if poll != PollNone {
		a.dropped = nil
	}
	if a.wanting == nil || poll != PollNone {
		a.wanting = map[string]Need{} // what came meanwhile may be shared: asked anew
	}
	a.forgetTold()
	if err := a.load(ctx); err != nil {
		return err
	}
	a.forgetKeys(ctx)
	return nil
}

// load reads the record, once.
func (a *Agent) load(ctx context.Context) error {
	if a.loaded {
		return nil
	}
	var err error
	if a.record, err = a.Recorder.Load(ctx); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	a.record.Version = RecordVersion
	a.least = maps.Clone(a.record.Least)
	if a.Pacer != nil {
		a.Pacer.Resume(a.record.Pace)
	}
	a.loaded = true
	return nil
}

func (a *Agent) save(ctx context.Context) error {
	if a.Pacer != nil {
		a.record.Pace = a.Pacer.Pace()
	}
	// What was done is kept also when the agent has been asked to stop.
	last := context.WithoutCancel(ctx)
	err := a.Recorder.Save(last, a.record)
	if err == nil {
		return nil
	}
	// One entry must not cost the others, nor the next apply.
	if gone := a.record.drop(MaxRecord); len(gone) > 0 {
		a.noteDropped(gone)
		err = a.Recorder.Save(last, a.record)
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// unseen reports a cycle that could not even look at the node: nothing was
// changed, and nothing is known to have changed.
func (a *Agent) unseen(ctx context.Context, cause error) (Status, error) {
	if ctx.Err() != nil {
		return Status{}, cause
	}
	a.Log.Error("cycle ended early", "cycle", a.cycle, "err", cause)
	s := a.blank(StateFailed, Reason{Kind: KindNode, Text: cause.Error(), ErrorKind: ErrorKindOf(cause)})
	s.Sources = sourceStatus(a.record)
	published := a.publish(ctx, &s)
	return s, errors.Join(cause, published)
}
