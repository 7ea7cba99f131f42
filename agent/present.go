// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
)

// blank is a status with everything but images: the state, since when, and the
// checks. Since moves only when the state does.
func (a *report) blank(state State, reasons ...Reason) Status {
	now := a.Now().UTC()
	if a.loaded && (a.record.State != state || a.record.Since.IsZero()) {
		a.record.State, a.record.Since = state, now
	}
	since := a.record.Since
	if since.IsZero() {
		since = now
	}
	return Status{
		SchemaVersion: StatusSchemaVersion, Version: a.Version,
		State: state, Reason: sentence(reasons), Reasons: reasons, Since: since, Written: now,
		LastCheck: when(a.record.LastCheck),
		NextCheck: a.nextCheck(), Budget: a.budget(),
		Sources: []SourceStatus{}, Images: []ImageStatus{}, PodManifests: []PodStatus{},
		Updates: []AnnouncedUpdate{}, NotAllowed: []NotAllowed{},
	}
}

// nextCheck is when the node asks next; nil: polling is off.
func (a *report) nextCheck() *time.Time {
	if a.timetable == nil {
		return nil
	}
	return when(a.timetable.NextPoll(Retries(a.record, a.Now()), a.unasked))
}

// budget is what is left of the requests; nil: all, or there is no limit.
func (a *report) budget() *BudgetStatus {
	if a.Pacer == nil {
		return nil
	}
	b := a.Pacer.Pace().Budget
	if b.PerHour == 0 {
		return nil
	}
	return &BudgetStatus{PerHour: b.PerHour, Left: b.Left}
}

func (a *report) podStatus(p PodPlan) PodStatus {
	s := PodStatus{
		PodManifest: p.File, Pod: p.Pod, Change: p.Change, Waiting: p.Waiting,
		Edits: append([]Edit{}, p.Edits...), RolledBack: a.record.rolledBack(p.File),
		Left: p.Left, Holds: append(orEmpty(p.Holds), p.Waits...),
	}
	if s.Left == nil {
		s.Left = []Left{}
	}
	if err := errors.Join(p.Err, a.errs[p.File]); err != nil {
		s.Error, s.ErrorKind = err.Error(), ErrorKindOf(err)
	}
	return s
}

// addImages adds the images of a plan, which is that of the next cycle, to a status.
func (a *report) addImages(s *Status, plan Plan) {
	unstaged := map[int]error{}
	add := func(p PodPlan, i ImagePlan) {
		key := releaseKey(i.Target.Repository, i.Target.Digest)
		if err := a.errs[key]; err != nil && plan.stages(key) {
			unstaged[len(s.Images)] = err
		}
		s.Images = append(s.Images, a.imageStatus(p, i))
	}
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			if i.Want.Ask.Repository != "" {
				add(p, i)
			}
		}
	}
	for _, i := range plan.Tracked {
		add(PodPlan{}, i)
	}
	for n, err := range unstaged {
		s.Images[n].RetryAt = a.stagedAgain(*s, err)
	}
}

// stagedAgain is when a release that could not be staged is tried again: in the next
// cycle that comes by itself, unless its host asked to be left alone for longer. nil:
// no cycle comes by itself.
func (a *report) stagedAgain(s Status, err error) *time.Time {
	if a.timetable == nil {
		return nil
	}
	at := a.timetable.NextObservation(s)
	if s.NextCheck != nil {
		at = earlier(at, *s.NextCheck)
	}
	if se, ok := errors.AsType[*SourceError](err); ok && se.RetryAt.After(at) {
		at = se.RetryAt
	}
	return when(at)
}

func (a *report) imageStatus(p PodPlan, i ImagePlan) ImageStatus {
	repository := i.Want.Ask.Repository
	if repository == "" {
		repository = i.Offer.Repository
	}
	s := ImageStatus{
		Image: repository, Container: i.Want.Image.Container, PodManifest: p.File,
		Follow: i.Offer.Follow.Tag, Change: i.Change, Holds: slices.Concat(orEmpty(p.Holds), p.Waits, i.Holds),
		Staged: i.Staged, StageFrom: i.StageFrom, Created: when(i.Target.Created),
		Running: named(i.Running.Tag, i.Running.Digest),
		Host:    i.Offer.Host, Mirror: i.Offer.Mirror,
		Refused: append([]Refusal{}, i.Offer.Refused...), Notes: append([]string{}, i.Offer.Notes...),
		NotAllowed: append([]Refusal{}, i.NotAllowed...), RebuildsOnly: i.RebuildsOnly,
		Shortage: i.Shortage,
	}
	if s.Down = i.Down; s.Down != nil {
		s.Running = nil
	}
	if s.Follow == "" {
		s.Follow = i.Want.Ask.Tag
	}
	key := releaseKey(i.Target.Repository, i.Target.Digest)
	s.SignedBy = a.record.Signed[key]
	if u, doubted := a.record.Unproved[key]; doubted && a.Policy.rule(repository).Signatures == SignaturesWarn {
		s.Notes = append(s.Notes, "not verified: "+u.Reason)
	}
	good := a.record.Good[goodKey(p.File, i.Want.Image.Container)]
	s.Adopted = good.Adopted && good.Running == i.Running.Digest
	s.LastGood = named(a.record.Releases[releaseKey(repository, good.Running)].Name(), good.Running)
	if i.Change != "" && !p.withheld() {
		s.Offered, s.Size = named(i.Target.Name(), i.Target.Digest), i.Target.Size
	}
	err := i.Offer.Err
	if !i.isThere() {
		err = errors.Join(err, a.errs[key])
	}
	if err != nil {
		s.Error, s.ErrorKind = err.Error(), ErrorKindOf(err)
	}
	return s
}

func sourceStatus(r Record) []SourceStatus {
	out := []SourceStatus{}
	for _, name := range slices.Sorted(maps.Keys(r.Sources)) {
		s := r.Sources[name]
		out = append(out, SourceStatus{
			Repository: name, Host: s.Host, Mirror: s.Mirror, Insecure: s.Insecure,
			LastSuccess: when(s.LastSuccess), Failures: s.Failures, Error: s.Error,
			Reason: s.Reason, Cause: s.Cause, HTTPStatus: s.HTTPStatus, RetryAt: when(s.RetryAt),
		})
	}
	return out
}

func named(tag string, d digest.Digest) *Named {
	if d == "" {
		return nil
	}
	return &Named{Tag: tag, Digest: d}
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func orEmpty(h []Hold) []Hold {
	if h == nil {
		return []Hold{}
	}
	return h
}
