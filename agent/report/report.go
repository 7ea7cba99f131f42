// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Timetable has the times of the loop's polls and observations.
type Timetable interface {
	// NextPoll returns the time of the next poll or retry. unasked: a source of a followed image has not been asked
	// yet.
	NextPoll(retries []time.Time, unasked bool) time.Time
	// NextObservation returns the time of the next observation. s is the current status.
	NextObservation(s status.Status) time.Time
}

// Report makes a status from a plan and other results of a cycle.
type Report struct {
	Record        *record.Record
	Loaded        bool             // the record is loaded
	Errs          map[string]error // of steps, by pod manifest or release
	Policy        policy.Policy
	Now           func() time.Time
	Version       string
	Pacer         record.Pacer // nil: none
	Timetable     Timetable    // nil: the agent runs without a loop
	Unasked       bool         // see Timetable.NextPoll
	Catalog       catalog.Listing
	LocalRegistry *localregistry.Status // nil: no hosts.toml names the node's local registry
	// Rollbacks are the targets of a person's rollback, by pod manifest. NoRollbacks is why other targets are out of
	// reach.
	Rollbacks   map[string]record.Override
	NoRollbacks map[string]string
}

// GrainKey is the key of the grain's error in Report.Errs.
const GrainKey = "grain"

// Announcement returns the data for the admin's UI: the state and the updates that wait for approval.
func (r *Report) Announcement(p plan.Plan, updates []status.AnnouncedUpdate) status.Announcement {
	state, _ := r.NodeState(p)
	return status.Announcement{
		State: string(state), Reason: status.SentenceOf(append(r.mustNotRun(p), r.notUp(p, nil)...)),
		Updates: updates, NotAllowed: p.NotAllowed(),
	}
}

// UpdatesOf returns the staged updates of a plan that wait for approval, sorted, without duplicates.
func UpdatesOf(pl plan.Plan) []status.AnnouncedUpdate {
	out := []status.AnnouncedUpdate{}
	for _, p := range pl.Pods {
		if !p.Ready || p.Change == policy.ChangeRemove {
			continue
		}
		for _, i := range p.Images {
			change := i.Change
			if change == "" && p.Waiting && i.Want.OnDisk.Repository != "" && p.Change == policy.ChangeConvert {
				change = policy.ChangeConvert // only the pull policy
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
