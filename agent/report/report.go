// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Timetable is when the loop polls and observes.
type Timetable interface {
	// NextPoll is the time of the next poll or retry. unasked: a source of a followed image was
	// not asked yet.
	NextPoll(retries []time.Time, unasked bool) time.Time
	// NextObservation is the time of the next observation. s is the current status.
	NextObservation(s status.Status) time.Time
}

// Report makes a status from a plan and what else a cycle knows.
type Report struct {
	Record    *record.Record
	Loaded    bool             // the record is known
	Errs      map[string]error // of steps, by pod manifest or release
	Policy    policy.Policy
	Now       func() time.Time
	Version   string
	Pacer     record.Pacer // nil: none
	Timetable Timetable    // nil: the agent runs without a loop
	Unasked   bool         // see Timetable.NextPoll
	Catalog   catalog.Listing
	OwnHost   *ownhost.Status // nil: no hosts.toml names the node's own host
	// Rollbacks are what a rollback by a person would return to, by pod manifest.
	Rollbacks map[string]record.Override
}

// GrainKey is the key of the grain's error in Report.Errs.
const GrainKey = "grain"

// Announcement is what the admin's UI shows: the state and the updates that wait for approval.
func (r *Report) Announcement(p plan.Plan, updates []status.AnnouncedUpdate) status.Announcement {
	state, _ := r.NodeState(p)
	return status.Announcement{
		State: string(state), Reason: status.SentenceOf(append(r.mustNotRun(p), r.notUp(p, nil)...)),
		Updates: updates, NotAllowed: p.NotAllowed(),
	}
}

// UpdatesOf are the staged updates of a plan that wait for approval, each once, sorted.
func UpdatesOf(pl plan.Plan) []status.AnnouncedUpdate {
	out := []status.AnnouncedUpdate{}
	for _, p := range pl.Pods {
		if !p.Ready || p.Change == policy.ChangeRemove {
			continue
		}
		for _, i := range p.Images {
			change := i.Change
			if change == "" && p.Waiting && i.Want.OnDisk.Repository != "" && p.Change == policy.ChangeConvert {
				change = policy.ChangeConvert // pull policy alone
			}
			if change != "" {
				out = append(out, status.AnnouncedUpdate{
					Image: i.Target.Repository, Change: change, From: i.From,
					To: i.Target.Name(), Digest: i.Target.Digest,
				})
			}
		}
	}
	slices.SortFunc(out, func(x, y status.AnnouncedUpdate) int {
		return strings.Compare(x.Image+x.To+x.From, y.Image+y.To+y.From)
	})
	return slices.Compact(out)
}
