// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// Agent runs cycles. The optional fields are Catalog, Preconditions, Readiness, Inhibitor, FleetLock, Quorum,
// Pacer, Verifier, Meter, Events, LocalRegistry, Progress and Jitter. It is not safe for concurrent use; Loop
// serializes the calls.
type Agent struct {
	Source        source.Source
	Catalog       catalog.Channel // nil: the registry's tags only
	Images        node.Images
	Pods          node.Pods
	Files         node.PodFiles
	Announcer     Announcer
	Recorder      record.Recorder
	Preconditions Preconditions         // for an apply; nil: none
	Readiness     apply.Readiness       // nil: a running container counts as ready
	Inhibitor     apply.Inhibitor       // nil: a shutdown is not delayed
	FleetLock     fleet.Locker          // required if Policy.Lock covers a pod
	Quorum        apply.Quorum          // of the control plane; nil: not checked
	Pacer         record.Pacer          // for Source; nil: none
	Verifier      stage.Verifier        // nil: signatures are not verified
	Meter         Meter                 // nil: events are not counted
	Events        watch.RuntimeEvents   // nil: containers are only polled
	LocalRegistry *localregistry.Keeper // nil: the node has no local registry
	Policy        policy.Policy
	Log           *slog.Logger
	Now           func() time.Time
	Progress      func(status.Progress) // called during long work and for each step; may be nil
	Jitter        func() float64        // random numbers from [0,1); nil: math/rand
	Version       string                // of the agent, for the status

	records    record.Store
	nodes      node.State
	space      stage.Space
	memory     source.Memory // of tag lists
	unfinished *source.Round // answers of an interrupted poll
	cycles     uint64        // number of cycles since the start

	// The Loop that runs the agent sets the fields below, and Progress.
	queue     *queue         // an urgent request interrupts the cycle
	watched   *watch.Watched // followed containers
	timetable *timetable     // of polls and observations; nil: there are none
}

// Announcer announces updates to the admin's UI.
type Announcer interface {
	// Announce sets the grain if it changed. It returns ErrHeld while another update
	// owns the node.
	Announce(ctx context.Context, a status.Announcement) error
	// Busy returns the grain with which another operation owns the node; "" if there is none.
	Busy(ctx context.Context) (grain string, err error)
}

// Preconditions check whether the node allows a restart of pods.
type Preconditions interface {
	// Holds returns the reasons against a restart. A failed check is a hold as well.
	Holds(ctx context.Context) []status.Hold
}

// Meter counts events. Calls may be concurrent and must not block. One Meter serves all
// agents of a daemon, so that its counts survive a reload.
type Meter interface {
	source.FailureMeter
	stage.StagingMeter
	apply.Meter
	CycleDone()
}

// begin starts a cycle. It fails if the record cannot be read.
func (a *Agent) begin(ctx context.Context, r *Request) (*cycle, error) {
	a.cycles++
	log := a.Log.With("cycle", strconv.FormatUint(a.cycles, 10))
	c := &cycle{agent: a, request: r, log: log, progress: &status.Reporter{To: a.Progress}}
	if a.queue == nil { // without a loop
		a.queue, a.watched = &queue{}, &watch.Watched{}
	}
	err := a.load(ctx, c.log)
	if r.poll != source.PollNone {
		a.records.ResetDropped()
	}
	a.space.Begin(r.poll != source.PollNone)
	jitter := a.Jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	c.asker = &source.Asker{
		Source: a.Source, Catalog: a.Catalog, Policy: a.Policy, Record: &a.records.Record, Memory: &a.memory,
		Meter: a.Meter, Log: c.log, Now: a.Now, Jitter: jitter, Progress: c.progress,
	}
	c.signs = &stage.SignatureChecker{
		Verifier: a.Verifier, Policy: a.Policy, Records: &a.records, Log: c.log, Now: a.Now, Jitter: jitter,
		Progress: c.progress,
	}
	c.stager = &stage.Stager{
		Images: a.Images, CRI: a.Pods, Signatures: c.signs, Space: &a.space, Meter: a.Meter, Policy: a.Policy,
		Log: c.log, Progress: c.progress,
	}
	c.lock = &fleet.Keeper{
		Server: a.FleetLock, Lock: a.Policy.Lock, Hold: status.HoldLock, Record: &a.records.Record.Lock,
		Worked: &a.records.Record.LockWorked, Records: &a.records, Heartbeat: c.progress.Heartbeat, Log: c.log,
		Now: a.Now, Jitter: jitter,
	}
	c.executor = &apply.Executor{
		Source: a.Source, Pods: a.Pods, Images: a.Images, Files: a.Files, Stager: c.stager, Readiness: a.Readiness,
		Inhibitor: a.Inhibitor, Lock: c.lock, Quorum: a.Quorum, Meter: a.Meter, Records: &a.records,
		Policy: a.Policy, Log: c.log, Now: a.Now, Jitter: jitter, Progress: c.progress, LocalRegistry: a.LocalRegistry,
		Caller: r, Observed: &a.nodes,
	}
	if err == nil {
		a.records.Record.Observe(a.Now())
		c.signs.DropRemovedKeys(ctx)
	}
	return c, err
}

// load reads the record once.
func (a *Agent) load(ctx context.Context, log *slog.Logger) error {
	a.records.Recorder, a.records.Pacer, a.records.Log = a.Recorder, a.Pacer, log
	if a.records.IsLoaded() {
		return nil
	}
	err := a.records.Load(ctx)
	a.space.Restore(a.records.Record.MinSpace)
	if err == nil && a.records.Record.New { // from now on, a missing record was lost
		a.records.TrySave(ctx, "")
	}
	return err
}
