// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
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
	Inhibitor     Inhibitor     // nil: nobody delays a shutdown
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

	records    Store
	nodes      NodeState
	space      Space
	unfinished *Round // a poll that was interrupted: what it has heard
	cycles     uint64 // since the start

	// The loop's; all nil without one.
	people    *queue     // whose requests go first
	watched   *watched   // what containers are missed, and which events count
	timetable *timetable // when the next poll and the next observation are
}

// begin begins a cycle. Its error is that the record cannot be read.
func (a *Agent) begin(ctx context.Context, e errand) (*cycle, error) {
	a.cycles++
	c := &cycle{Agent: a, errand: e, log: a.Log.With("cycle", strconv.FormatUint(a.cycles, 10))}
	c.progress = &Reporter{To: a.Progress}
	err := a.load(ctx, c.log)
	if e.poll != PollNone {
		a.records.ForgetDropped()
	}
	a.space.Begin(e.poll != PollNone)
	jitter := a.Jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	c.asker = &Asker{
		Source: a.Source, Policy: a.Policy, Record: &a.records.Record, Meter: a.Meter, Log: c.log, Now: a.Now,
		Jitter: jitter, Progress: c.progress,
	}
	c.signs = &SignatureChecker{
		Verifier: a.Verifier, Policy: a.Policy, Records: &a.records, Log: c.log, Now: a.Now, Jitter: jitter,
		Progress: c.progress,
	}
	c.stager = &Stager{
		Images: a.Images, CRI: a.Pods, Signatures: c.signs, Space: &a.space, Meter: a.Meter, Policy: a.Policy,
		Log: c.log, Progress: c.progress,
	}
	c.restarter = &Restarter{
		Source: a.Source, Pods: a.Pods, Images: a.Images, Files: a.Files, Stager: c.stager, Readiness: a.Readiness,
		Inhibitor: a.Inhibitor, Meter: a.Meter, Records: &a.records, Policy: a.Policy, Log: c.log, Now: a.Now,
		Progress: c.progress,
	}
	if err == nil {
		c.signs.ForgetGoneKeys(ctx)
	}
	return c, err
}

// load reads the record, once.
func (a *Agent) load(ctx context.Context, log *slog.Logger) error {
	a.records.Recorder, a.records.Pacer, a.records.Log = a.Recorder, a.Pacer, log
	if a.records.IsLoaded() {
		return nil
	}
	err := a.records.Load(ctx)
	a.space.Learn(a.records.Record.Least)
	return err
}
