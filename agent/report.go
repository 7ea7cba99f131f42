// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// report records what runs well, announces it to the admin's UI and publishes the
// status. The plan is of the node as it is now, after the steps: all three say what is,
// not what was to be.
func (c *cycle) report(ctx context.Context, inv Inventory, offers map[Question]Offer, plan Plan) (done, error) {
	rec := &c.records.Record
	use := inUse(plan, offers, inv, c.Now())
	rec.NoteRunning(use.Pods, c.Policy.Prune.Keep)
	rec.Least = c.space.AtLeast()
	rec.Retain(use, c.Now())
	c.space.Learn(rec.Least)
	r := c.newReport(len(plan.unasked()) > 0)
	updates := updatesOf(plan)
	if err := c.announce(ctx, r.announcement(plan, updates)); err != nil {
		c.log.Warn("grain not set", "err", err)
		r.errs[grainKey] = fmt.Errorf("grain: %w", err)
	}
	state, reasons := r.nodeState(plan)
	c.nodes.Missing = plan.missing()
	c.watched.update(plan, inv)
	s := r.blank(state, reasons...)
	s.Sources, s.Updates, s.NotAllowed = sourceStatus(*rec), updates, plan.notAllowed()
	for _, p := range plan.Pods {
		s.PodManifests = append(s.PodManifests, r.podStatus(p))
	}
	r.addImages(&s, plan)
	err := c.records.Save(ctx)
	if err != nil {
		// What is not saved is forgotten at the next start: holds, approvals, waits.
		s.fails(Reason{Kind: KindRecord, Text: err.Error(), ErrorKind: ErrorKindOf(err)})
		c.log.Error("record not saved", "err", err)
	}
	published := c.records.Publish(ctx, &s)
	if published != nil {
		c.log.Warn("status not published", "err", published)
	}
	return done{status: s, reported: true, results: c.results}, errors.Join(err, published)
}

// reportUnobserved reports a cycle that could not even observe the node: nothing was
// changed, and nothing is known to have changed.
func (c *cycle) reportUnobserved(ctx context.Context, cause error) (done, error) {
	if ctx.Err() != nil {
		return done{}, cause
	}
	c.log.Error("cycle ended early", "err", cause)
	s := c.newReport(false).blank(StateFailed, Reason{Kind: KindNode, Text: cause.Error(), ErrorKind: ErrorKindOf(cause)})
	s.Sources = sourceStatus(c.records.Record)
	published := c.records.Publish(ctx, &s)
	return done{status: s, reported: true}, errors.Join(cause, published)
}

// Timetable tells when something happens by itself.
type Timetable interface {
	// NextPoll is when anything is asked next. unasked: something is followed for which
	// no source was asked yet.
	NextPoll(retries []time.Time, unasked bool) time.Time
	// NextObservation is when the node is observed next. s is the node as it is now.
	NextObservation(s Status) time.Time
}

// report is what a status is made from beside the plan.
type report struct {
	record    *Record
	loaded    bool             // the record is known
	errs      map[string]error // what did not work, by pod manifest or release
	Policy    Policy
	Now       func() time.Time
	Version   string
	Pacer     Pacer     // nil: none
	timetable Timetable // nil: nothing is asked or observed by itself
	unasked   bool      // something is followed for which no source was asked yet
}

// starting is the status before the first cycle.
func (a *Agent) starting() Status {
	c := &cycle{Agent: a}
	return c.newReport(false).blank(StateUnchecked, Reason{Kind: KindStarting, Text: "starting"})
}

func (c *cycle) newReport(unasked bool) *report {
	r := &report{
		record: &c.records.Record, loaded: c.records.IsLoaded(), errs: c.results.errors(), Policy: c.Policy, Now: c.Now,
		Version: c.Version, Pacer: c.Pacer, unasked: unasked,
	}
	if c.timetable != nil {
		r.timetable = c.timetable
	}
	return r
}

// grainKey is where the grain's own trouble stands among a cycle's errors.
const grainKey = "grain"

// announcement is what the UI is told: what is staged and waits for approval.
func (a *report) announcement(plan Plan, updates []AnnouncedUpdate) Announcement {
	state, _ := a.nodeState(plan)
	return Announcement{
		State: string(state), Reason: sentence(a.fallen(plan, nil)), Updates: updates, NotAllowed: plan.notAllowed(),
	}
}

func (c *cycle) announce(ctx context.Context, what Announcement) error {
	err := c.Announcer.Announce(ctx, what)
	if errors.Is(err, ErrHeld) {
		c.log.Info("grain is held", "reason", err)
		return nil
	}
	return err
}

// updatesOf are what a plan has staged and waits for approval, each once, sorted.
func updatesOf(plan Plan) []AnnouncedUpdate {
	out := []AnnouncedUpdate{}
	for _, p := range plan.Pods {
		if !p.Ready || p.Change == ChangeRemove {
			continue
		}
		for _, i := range p.Images {
			change := i.Change
			if change == "" && p.Waiting && i.Want.OnDisk.Repository != "" && p.Change == ChangeConvert {
				change = ChangeConvert // pull policy alone
			}
			if change != "" {
				out = append(out, AnnouncedUpdate{
					Image: i.Target.Repository, Change: change, From: i.From,
					To: i.Target.Name(), Digest: i.Target.Digest,
				})
			}
		}
	}
	slices.SortFunc(out, func(x, y AnnouncedUpdate) int {
		return strings.Compare(x.Image+x.To+x.From, y.Image+y.To+y.From)
	})
	return slices.Compact(out)
}
