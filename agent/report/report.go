// SPDX-License-Identifier: Apache-2.0

// Package report makes the status document from a plan, the record and the errors of a cycle.
// It is pure.
package report

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
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
					Image: i.Target.Repository, Change: change, From: i.Running.Tag,
					To: i.Target.Name(), Digest: i.Target.Digest, Severity: i.Brings.Severity, Fixes: i.Brings.Fixes,
				})
			}
		}
	}
	slices.SortFunc(out, func(x, y status.AnnouncedUpdate) int {
		return strings.Compare(x.Image+x.To+x.From, y.Image+y.To+y.From)
	})
	return slices.CompactFunc(out, func(x, y status.AnnouncedUpdate) bool {
		return x.Image == y.Image && x.Change == y.Change && x.From == y.From && x.To == y.To && x.Digest == y.Digest
	})
}

// NewStatus returns a status without sources, images and pod manifests. Since changes with the state.
func (r *Report) NewStatus(state status.State, reasons ...status.Reason) status.Status {
	now := r.Now().UTC()
	if r.Loaded && (r.Record.State != state || r.Record.Since.IsZero()) {
		r.Record.State, r.Record.Since = state, now
	}
	since := r.Record.Since
	if since.IsZero() {
		since = now
	}
	return status.Status{
		SchemaVersion: status.StatusSchemaVersion, Version: r.Version,
		State: state, Reason: status.SentenceOf(reasons), Reasons: reasons, Since: since, Written: now,
		LastCheck: when(r.Record.LastCheck),
		NextCheck: r.nextCheck(), Budget: r.budget(), Catalog: r.catalogStatus(), LocalRegistry: r.LocalRegistry,
		Lock: r.lockStatus(), Auto: r.auto(now),
		Sources: []status.SourceStatus{}, Images: []status.ImageStatus{}, PodManifests: []status.PodStatus{},
		Releases: []status.ReleaseStatus{},
		Updates:  []status.AnnouncedUpdate{}, NotAllowed: []status.NotAllowed{},
		Failures: r.failuresOf(state, reasons), StandingHolds: []status.StandingHold{},
		History: append([]status.HistoryEntry{}, r.Record.History...),
	}
}

// auto returns when mode auto may apply; nil if updates wait for approval.
func (r *Report) auto(now time.Time) *status.AutoStatus {
	if !r.Policy.Auto {
		return nil
	}
	open, change := r.Policy.IsWindowOpen(now)
	return &status.AutoStatus{Open: open, ChangesAt: when(change)}
}

// nextCheck returns the time of the next poll or retry; nil if polling is off.
func (r *Report) nextCheck() *time.Time {
	if r.Timetable == nil {
		return nil
	}
	return when(r.Timetable.NextPoll(source.Retries(r.Record, r.Now()), r.Unasked))
}

// budget returns the rest of the request budget; nil if there is no limit.
func (r *Report) budget() *status.BudgetStatus {
	if r.Pacer == nil {
		return nil
	}
	b := r.Pacer.Pace().Budget
	if b.PerHour == 0 {
		return nil
	}
	return &status.BudgetStatus{PerHour: b.PerHour, Remaining: b.Remaining}
}

// PodStatus returns the status of a pod manifest.
func (r *Report) PodStatus(p plan.PodPlan) status.PodStatus {
	s := status.PodStatus{
		PodManifest: p.File, Pod: p.Pod, Change: p.Change, Waiting: p.Waiting,
		Edits: append([]status.Edit{}, p.Edits...), RolledBack: r.Record.RolledBack(p.File),
		Untouched: p.Untouched, Holds: status.Explained(p.Holds, p.Waits),
	}
	_, s.CanRollBack = r.Rollbacks[p.File]
	s.NoRollback = r.NoRollbacks[p.File]
	if s.Untouched == nil {
		s.Untouched = []status.Untouched{}
	}
	if err := errors.Join(p.Err, r.Errs[p.File]); err != nil {
		s.Error, s.ErrorKind = err.Error(), status.ErrorKindOf(err)
	}
	return s
}

// AddImages adds the images of the next cycle's plan to a status.
func (r *Report) AddImages(s *status.Status, pl plan.Plan) {
	unstaged := map[int]error{}
	add := func(p plan.PodPlan, i plan.ImagePlan) {
		key := release.Key(i.Target.Repository, i.Target.Digest)
		if err := r.Errs[key]; err != nil && pl.Stages(key) {
			unstaged[len(s.Images)] = err
		}
		s.Images = append(s.Images, r.imageStatus(p, i))
	}
	for _, p := range pl.Pods {
		for _, i := range p.Images {
			if i.Want.Ask.Repository != "" {
				add(p, i)
			}
		}
	}
	for _, i := range pl.Tracked {
		add(plan.PodPlan{}, i)
	}
	for n, err := range unstaged {
		s.Images[n].RetryAt = r.stagingRetry(*s, err)
	}
}

// stagingRetry returns when a failed staging is retried: in the next observation or poll, but not before its host's
// Retry-After. nil if there is no timetable.
func (r *Report) stagingRetry(s status.Status, err error) *time.Time {
	if r.Timetable == nil {
		return nil
	}
	at := r.Timetable.NextObservation(s)
	if s.NextCheck != nil {
		at = policy.Earlier(at, *s.NextCheck)
	}
	if se, ok := errors.AsType[*release.SourceError](err); ok && se.RetryAt.After(at) {
		at = se.RetryAt
	}
	return when(at)
}

func (r *Report) imageStatus(p plan.PodPlan, i plan.ImagePlan) status.ImageStatus {
	repository := i.Want.Ask.Repository
	if repository == "" {
		repository = i.Offer.Repository
	}
	s := status.ImageStatus{
		Image: repository, Container: i.Want.Image.Container, PodManifest: p.File,
		Follow: i.Offer.Follow.Tag, Change: i.Change, Holds: status.Explained(p.Holds, p.Waits, i.Holds),
		Staged: i.Staged, StageFrom: i.StageFrom, Created: when(i.Target.Created),
		Running: named(i.Running.Tag, i.Running.Digest),
		Host:    i.Offer.Host, Mirror: i.Offer.Mirror,
		Refused: append([]policy.Refusal{}, i.Offer.Refused...), Notes: append([]string{}, i.Offer.Notes...),
		NotAllowed: append([]policy.Refusal{}, i.NotAllowed...), RebuildsOnly: i.RebuildsOnly,
		Shortage: i.Shortage, Brings: i.Brings.OrNil(),
	}
	if s.Down = i.Down; s.Down != nil {
		s.Running = nil
	}
	if s.Follow == "" {
		s.Follow = i.Want.Ask.Tag
	}
	r.addListed(&s, i)
	key := release.Key(i.Target.Repository, i.Target.Digest)
	s.SignedBy = r.Record.Signed[key]
	if u, known := r.Record.Unsigned[key]; known && r.Policy.RuleFor(repository).Signatures == policy.SignaturesWarn {
		s.Notes = append(s.Notes, "signature not verified: "+u.Reason)
	}
	good := r.Record.Good[record.GoodKey(p.File, i.Want.Image.Container)]
	if at, ok := r.Rollbacks[p.File].Images[node.PlaceOf(i.Want.Image)]; ok && at.Digest != i.Running.Digest {
		s.Previous = named(at.Tag, at.Digest)
	}
	if why := r.NoRollbacks[p.File]; why != "" {
		s.Notes = append(s.Notes, "no rollback is possible: "+why)
	}
	s.PickedUp = good.PickedUp && good.Running == i.Running.Digest
	s.LastKnownGood = named(r.Record.Releases[release.Key(repository, good.Running)].Name(), good.Running)
	if i.Change != "" && !p.BlocksOffer() {
		s.Offered, s.Size = named(i.Target.Name(), i.Target.Digest), i.Target.Size
	}
	err := i.Offer.Err
	if !i.RunsTarget() {
		err = errors.Join(err, r.Errs[key])
	}
	if err != nil {
		s.Error, s.ErrorKind = err.Error(), status.ErrorKindOf(err)
	}
	return s
}

// SourceStatus lists the sources by repository.
func SourceStatus(rec record.Record) []status.SourceStatus {
	out := []status.SourceStatus{}
	for _, name := range slices.Sorted(maps.Keys(rec.Sources)) {
		s := rec.Sources[name]
		out = append(out, status.SourceStatus{
			Repository: name, Kind: s.Kind, Host: s.Host, Mirror: s.Mirror, Insecure: s.Insecure,
			HostsIgnored: s.HostsIgnored, Skipped: s.Skipped,
			LastSuccess: when(s.LastSuccess), Failures: s.Failures, Error: s.Error,
			Reason: s.Reason, Cause: s.Cause, HTTPStatus: s.HTTPStatus, RetryAt: when(s.RetryAt),
		})
	}
	return out
}

func named(tag string, d digest.Digest) *status.Named {
	if d == "" {
		return nil
	}
	return &status.Named{Tag: tag, Digest: d}
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Releases returns the state of each release that the node runs, is offered, or has denied; sorted.
func (r *Report) Releases(pl plan.Plan) []status.ReleaseStatus {
	all := releases{}
	followed := map[string]bool{}
	for _, p := range pl.Pods {
		for _, i := range p.Images {
			repository := i.Want.Ask.Repository
			if repository == "" {
				continue
			}
			followed[repository] = true
			if is := r.shouldRun(p, i); is.Digest != "" {
				all.add(repository, is, r.runningState(p, i))
			}
			if i.Change != "" && i.Target.Digest != "" && !p.BlocksOffer() {
				all.add(repository, status.Named{Tag: i.Target.Name(), Digest: i.Target.Digest}, r.offeredState(p, i))
			}
		}
	}
	for key, d := range r.Record.Denied {
		if repository, of, _ := strings.Cut(key, "@"); followed[repository] && !d.Past {
			all.add(repository, status.Named{Tag: d.Name, Digest: digest.Digest(of)}, status.ReleaseFailed)
		}
	}
	out := append([]status.ReleaseStatus{}, slices.Collect(maps.Values(all))...)
	slices.SortFunc(out, func(a, b status.ReleaseStatus) int {
		return cmp.Or(cmp.Compare(a.Image, b.Image), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// releases are the states by "repository@digest".
type releases map[string]status.ReleaseStatus

func (all releases) add(repository string, of status.Named, state status.ReleaseState) {
	key := release.Key(repository, of.Digest)
	was, is := all[key]
	if order := status.ReleaseStates(); is && slices.Index(order, was.State) <= slices.Index(order, state) {
		state = was.State
	}
	all[key] = status.ReleaseStatus{
		Image: repository, Tag: cmp.Or(was.Tag, of.Tag), Digest: of.Digest, State: state,
	}
}

// shouldRun returns the running release of a container. If there is no container, that is the one that kubelet must
// start: of the pod manifest, or, before an update, the last known good one.
func (r *Report) shouldRun(p plan.PodPlan, i plan.ImagePlan) status.Named {
	switch {
	case i.Running.Digest != "" || i.Down == nil:
		return i.Running
	case i.Change == "":
		return status.Named{Tag: i.Target.Name(), Digest: i.Target.Digest}
	default:
		good := r.Record.Good[record.GoodKey(p.File, i.Want.Image.Container)]
		return status.Named{
			Tag: r.Record.Releases[release.Key(good.Repository, good.Running)].Name(), Digest: good.Running,
		}
	}
}

func (r *Report) runningState(p plan.PodPlan, i plan.ImagePlan) status.ReleaseState {
	f, hasFailed := r.Record.Failed[p.File]
	switch {
	case hasFailed && (f.Running != "" || i.Change == "" && f.Offer == p.ID), i.Down != nil && !i.Down.Starting:
		return status.ReleaseFailed
	case i.Down != nil, r.isUnverified(p.File, i):
		return status.ReleaseStarting
	default:
		return status.ReleaseRunning
	}
}

// isUnverified reports whether a container runs a release that has not passed its health check.
func (r *Report) isUnverified(file string, i plan.ImagePlan) bool {
	g := r.Record.Good[record.GoodKey(file, i.Want.Image.Container)]
	return i.Running.Digest != "" && g.Running != "" &&
		!r.Record.IsGood(g, i.Want.Ask.Repository, i.Running.Digest, i.Config)
}

func (r *Report) offeredState(p plan.PodPlan, i plan.ImagePlan) status.ReleaseState {
	f, hasFailed := r.Record.Failed[p.File]
	switch {
	case hasFailed && f.Offer == p.ID:
		return status.ReleaseFailed
	case len(p.Holds) > 0 || slices.ContainsFunc(p.Waits, status.Hold.BindsPeople):
		return status.ReleaseHeld
	case !i.Staged:
		return status.ReleaseOffered
	default:
		return status.ReleaseStaged
	}
}
