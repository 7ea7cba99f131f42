// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Blank is a status with everything but images: the state, since when, and the
// checks. Since moves only when the state does.
func (a *Report) Blank(state status.State, reasons ...status.Reason) status.Status {
	now := a.Now().UTC()
	if a.Loaded && (a.Record.State != state || a.Record.Since.IsZero()) {
		a.Record.State, a.Record.Since = state, now
	}
	since := a.Record.Since
	if since.IsZero() {
		since = now
	}
	return status.Status{
		SchemaVersion: status.StatusSchemaVersion, Version: a.Version,
		State: state, Reason: status.SentenceOf(reasons), Reasons: reasons, Since: since, Written: now,
		LastCheck: when(a.Record.LastCheck),
		NextCheck: a.nextCheck(), Budget: a.budget(),
		Sources: []status.SourceStatus{}, Images: []status.ImageStatus{}, PodManifests: []status.PodStatus{},
		Updates: []status.AnnouncedUpdate{}, NotAllowed: []status.NotAllowed{},
	}
}

// nextCheck is when the node asks next; nil: polling is off.
func (a *Report) nextCheck() *time.Time {
	if a.Timetable == nil {
		return nil
	}
	return when(a.Timetable.NextPoll(source.Retries(a.Record, a.Now()), a.Unasked))
}

// budget is what is left of the requests; nil: all, or there is no limit.
func (a *Report) budget() *status.BudgetStatus {
	if a.Pacer == nil {
		return nil
	}
	b := a.Pacer.Pace().Budget
	if b.PerHour == 0 {
		return nil
	}
	return &status.BudgetStatus{PerHour: b.PerHour, Left: b.Left}
}

func (a *Report) PodStatus(p plan.PodPlan) status.PodStatus {
	s := status.PodStatus{
		PodManifest: p.File, Pod: p.Pod, Change: p.Change, Waiting: p.Waiting,
		Edits: append([]status.Edit{}, p.Edits...), RolledBack: a.Record.RolledBack(p.File),
		Left: p.Left, Holds: append(orEmpty(p.Holds), p.Waits...),
	}
	if s.Left == nil {
		s.Left = []status.Left{}
	}
	if err := errors.Join(p.Err, a.Errs[p.File]); err != nil {
		s.Error, s.ErrorKind = err.Error(), status.ErrorKindOf(err)
	}
	return s
}

// AddImages adds the images of a plan, which is that of the next cycle, to a status.
func (a *Report) AddImages(s *status.Status, pl plan.Plan) {
	unstaged := map[int]error{}
	add := func(p plan.PodPlan, i plan.ImagePlan) {
		key := release.Key(i.Target.Repository, i.Target.Digest)
		if err := a.Errs[key]; err != nil && pl.Stages(key) {
			unstaged[len(s.Images)] = err
		}
		s.Images = append(s.Images, a.imageStatus(p, i))
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
		s.Images[n].RetryAt = a.stagedAgain(*s, err)
	}
}

// stagedAgain is when a release that could not be staged is tried again: in the next
// cycle that comes by itself, unless its host asked to be left alone for longer. nil:
// no cycle comes by itself.
func (a *Report) stagedAgain(s status.Status, err error) *time.Time {
	if a.Timetable == nil {
		return nil
	}
	at := a.Timetable.NextObservation(s)
	if s.NextCheck != nil {
		at = policy.Earlier(at, *s.NextCheck)
	}
	if se, ok := errors.AsType[*release.SourceError](err); ok && se.RetryAt.After(at) {
		at = se.RetryAt
	}
	return when(at)
}

func (a *Report) imageStatus(p plan.PodPlan, i plan.ImagePlan) status.ImageStatus {
	repository := i.Want.Ask.Repository
	if repository == "" {
		repository = i.Offer.Repository
	}
	s := status.ImageStatus{
		Image: repository, Container: i.Want.Image.Container, PodManifest: p.File,
		Follow: i.Offer.Follow.Tag, Change: i.Change, Holds: slices.Concat(orEmpty(p.Holds), p.Waits, i.Holds),
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
	key := release.Key(i.Target.Repository, i.Target.Digest)
	s.SignedBy = a.Record.Signed[key]
	if u, doubted := a.Record.Unproved[key]; doubted && a.Policy.RuleFor(repository).Signatures == policy.SignaturesWarn {
		s.Notes = append(s.Notes, "not verified: "+u.Reason)
	}
	good := a.Record.Good[record.GoodKey(p.File, i.Want.Image.Container)]
	s.Adopted = good.Adopted && good.Running == i.Running.Digest
	s.LastGood = named(a.Record.Releases[release.Key(repository, good.Running)].Name(), good.Running)
	if i.Change != "" && !p.Withheld() {
		s.Offered, s.Size = named(i.Target.Name(), i.Target.Digest), i.Target.Size
	}
	err := i.Offer.Err
	if !i.RunsTarget() {
		err = errors.Join(err, a.Errs[key])
	}
	if err != nil {
		s.Error, s.ErrorKind = err.Error(), status.ErrorKindOf(err)
	}
	return s
}

func SourceStatus(r record.Record) []status.SourceStatus {
	out := []status.SourceStatus{}
	for _, name := range slices.Sorted(maps.Keys(r.Sources)) {
		s := r.Sources[name]
		out = append(out, status.SourceStatus{
			Repository: name, Host: s.Host, Mirror: s.Mirror, Insecure: s.Insecure,
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

func orEmpty(h []status.Hold) []status.Hold {
	if h == nil {
		return []status.Hold{}
	}
	return h
}
