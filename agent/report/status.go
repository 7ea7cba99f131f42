// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
		Shortage: i.Shortage,
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
