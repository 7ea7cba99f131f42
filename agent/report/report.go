// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Timetable tells when something happens by itself.
type Timetable interface {
	// NextPoll is when anything is asked next. unasked: something is followed for which
	// no source was asked yet.
	NextPoll(retries []time.Time, unasked bool) time.Time
	// NextObservation is when the node is observed next. s is the node as it is now.
	NextObservation(s status.Status) time.Time
}

// Report is what a status is made from beside the plan.
type Report struct {
	Record    *record.Record
	Loaded    bool             // the record is known
	Errs      map[string]error // what did not work, by pod manifest or release
	Policy    policy.Policy
	Now       func() time.Time
	Version   string
	Pacer     record.Pacer // nil: none
	Timetable Timetable    // nil: nothing is asked or observed by itself
	Unasked   bool         // something is followed for which no source was asked yet
}

// GrainKey is where the grain's own trouble stands among a cycle's errors.
const GrainKey = "grain"

// Announcement is what the UI is told: what is staged and waits for approval.
func (a *Report) Announcement(plan plan.Plan, updates []status.AnnouncedUpdate) status.Announcement {
	state, _ := a.NodeState(plan)
	return status.Announcement{
		State: string(state), Reason: status.SentenceOf(a.notUp(plan, nil)), Updates: updates, NotAllowed: plan.NotAllowed(),
	}
}

// UpdatesOf are what a plan has staged and waits for approval, each once, sorted.
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
