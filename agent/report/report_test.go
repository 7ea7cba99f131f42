// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/report"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// timetable polls at the first retry, and observes after ten minutes.
type timetable struct{}

func (timetable) NextPoll(retries []time.Time, _ bool) time.Time {
	return policy.Earliest(now.Add(time.Hour), retries)
}
func (timetable) NextObservation(status.Status) time.Time { return now.Add(10 * time.Minute) }

type pacer struct{ pace record.Pace }

func (p pacer) Pace() record.Pace { return p.pace }
func (pacer) Resume(record.Pace)  {}
func (pacer) TryAgain()           {}

func TestNewStatus(t *testing.T) {
	t.Parallel()
	r := newReport()
	s := r.NewStatus(status.StateCurrent, status.Reason{Text: "x"})
	assert.Equal(t, "x", s.Reason)
	assert.Equal(t, now, s.Since)
	assert.Nil(t, s.NextCheck, "there is no timetable")
	assert.Nil(t, s.Budget)
	assert.Nil(t, s.Catalog)
	assert.Nil(t, s.Lock)
	later := now.Add(time.Minute)
	r.Now = func() time.Time { return later }
	assert.Equal(t, now, r.NewStatus(status.StateCurrent).Since, "the state is the same")
	assert.Equal(t, later, r.NewStatus(status.StateStaged).Since)
	r.Loaded = false
	assert.Equal(t, later, r.NewStatus(status.StateFailed).Since)
	assert.Equal(t, status.StateStaged, r.Record.State, "a record that is not known is not written")

	r = newReport()
	r.Timetable, r.Pacer = timetable{}, pacer{record.Pace{Budget: record.Budget{PerHour: 100, Remaining: 7}}}
	r.Record.Sources.Set(velum, record.SourceRecord{Failures: 1, RetryAt: now.Add(5 * time.Minute)})
	r.Catalog = catalog.Listing{Catalog: "c", Version: 2, Expires: now, Images: map[string][]format.Release{velum: nil}}
	r.Record.Sources.Set("c", record.SourceRecord{LastSuccess: now})
	rolledBack(false)(r)
	_, reasons := r.NodeState(current())
	s = r.NewStatus(status.StateFailed, reasons...)
	assert.Equal(t, now.Add(5*time.Minute), *s.NextCheck)
	assert.Equal(t, &status.BudgetStatus{PerHour: 100, Remaining: 7}, s.Budget)
	assert.Equal(t, &catalog.Status{Catalog: "c", Version: 2, Expires: &now, Expired: true, Images: 1, LastSuccess: &now}, s.Catalog)
	require.Len(t, s.Failures, 1)
	f := s.Failures[0]
	f.At, f.Reason = nil, ""
	assert.Equal(t, status.Failure{
		PodManifest: file, Container: "velum", Image: velum, Kind: status.KindRolledBack, From: "a", To: "b", RolledBackTo: "4.0.0-rev1", Cause: "not-up",
	}, f)
	r.Pacer = pacer{}
	assert.Nil(t, r.NewStatus(status.StateFailed, status.Reason{Kind: status.KindApproval}).Budget)
}

func TestPodStatus(t *testing.T) {
	t.Parallel()
	r := newReport()
	s := r.PodStatus(current().Pods[0])
	assert.Equal(t, status.PodStatus{
		PodManifest: file, Pod: "velum", Edits: []status.Edit{}, Untouched: []status.Untouched{}, Holds: []status.Hold{},
	}, s)
	rolledBack(true)(r)
	r.Rollbacks = map[string]record.Override{file: {}}
	r.Errs[file] = release.ErrConflict
	p := offered().Pods[0]
	p.Holds, p.Waits = []status.Hold{{Name: status.HoldBusy, Reason: "the grain is true"}}, []status.Hold{{Name: status.HoldWindow}}
	s = r.PodStatus(p)
	assert.True(t, s.CanRollBack)
	assert.True(t, s.RolledBack.ByHand)
	assert.Equal(t, status.ErrorConflict, s.ErrorKind)
	require.Len(t, s.Holds, 2)
	assert.NotEmpty(t, s.Holds[0].Remedy)
	assert.True(t, s.Holds[1].OnlyAuto)
}

func TestImageStatus(t *testing.T) {
	t.Parallel()
	of := func(r *report.Report, pl plan.Plan) status.ImageStatus {
		s := status.Status{}
		r.AddImages(&s, pl)
		require.Len(t, s.Images, 1)
		return s.Images[0]
	}
	i := of(newReport(), current())
	assert.Equal(t, &status.Named{Tag: "4.0.0-rev1", Digest: one}, i.Running)
	assert.Equal(t, "4.0.0", i.Follow)
	assert.Nil(t, i.Offered)
	assert.Nil(t, i.Previous)
	assert.Nil(t, i.LastKnownGood)

	r := newReport()
	r.Record.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: one, PickedUp: true})
	r.Record.Releases.Set(release.Key(velum, one), release.Release{Tag: "4.0.0-rev1"})
	r.Record.Signed.Set(release.Key(velum, two), "a key")
	r.Rollbacks = map[string]record.Override{file: {Images: map[string]record.PinnedImage{
		"container velum": {Pin: release.Pin{Digest: two}, Tag: "old"}, "container db": {Tag: "x"},
	}}}
	r.Catalog = catalog.Listing{Catalog: "c", Images: map[string][]format.Release{velum: {
		{Digest: one, Withdrawn: &format.Withdrawal{Reason: "x"}}, {Digest: two, Set: "s", Rollout: &format.Rollout{From: now}},
	}}}
	i = of(r, offered())
	assert.Equal(t, &status.Named{Tag: "4.0.0-rev2", Digest: two}, i.Offered)
	assert.Equal(t, &status.Named{Tag: "4.0.0-rev1", Digest: one}, i.LastKnownGood)
	assert.Equal(t, &status.Named{Tag: "old", Digest: two}, i.Previous)
	assert.True(t, i.PickedUp)
	assert.Equal(t, "a key", i.SignedBy)
	assert.Equal(t, "s", i.Set)
	assert.Equal(t, now, i.RolloutAt)
	assert.Equal(t, "x", i.Withdrawn.Reason)
	r.Rollbacks[file] = record.Override{Images: map[string]record.PinnedImage{"container velum": {Pin: release.Pin{Digest: one}}}}
	assert.Nil(t, of(r, offered()).Previous, "a rollback leaves it as it is")

	pl := offered()
	pl.Pods[0].Images[0].Down, pl.Pods[0].Images[0].Offer.Err = &status.Down{}, away
	i = of(newReport(), pl)
	assert.Nil(t, i.Running)
	assert.Equal(t, status.ErrorSource, i.ErrorKind)
	pl.Pods[0].Holds = []status.Hold{{Name: status.HoldUnresolved}}
	assert.Nil(t, of(newReport(), pl).Offered)
	warns := newReport()
	warns.Policy.Rule = func(string) policy.Rule { return policy.Rule{Signatures: policy.SignaturesWarn} }
	warns.Record.Unsigned.Set(release.Key(velum, two), record.Unsigned{Reason: "not signed"})
	assert.Equal(t, []string{"signature not verified: not signed"}, of(warns, offered()).Notes)
	tracked := image()
	tracked.Want.Ask = release.Question{}
	assert.Equal(t, velum, of(newReport(), plan.Plan{Tracked: []plan.ImagePlan{tracked}}).Image)
}

// A failed staging is retried in the next observation or poll, but not before its host's Retry-After.
func TestRetryOfAStaging(t *testing.T) {
	t.Parallel()
	key := release.Key(velum, two)
	pl := offered()
	pl.Pods[0].Images[0].Staged = false
	pl.Steps = []plan.Step{{Do: plan.StepStage, Release: pl.Pods[0].Images[0].Target}}
	soon := now.Add(time.Minute)
	for name, c := range map[string]struct {
		err  error
		poll *time.Time
		want time.Duration
	}{
		"in the next look":      {errors.New("x"), nil, 10 * time.Minute},
		"in the next poll":      {errors.New("x"), &soon, time.Minute},
		"after the host's wish": {&release.SourceError{RetryAt: now.Add(time.Hour), Err: errors.New("429")}, &soon, time.Hour},
	} {
		r := newReport()
		r.Timetable, r.Errs[key] = timetable{}, c.err
		s := status.Status{NextCheck: c.poll}
		r.AddImages(&s, pl)
		assert.Equal(t, now.Add(c.want), *s.Images[0].RetryAt, name)
		assert.NotEmpty(t, s.Images[0].Error)
		r.Timetable = nil
		s = status.Status{}
		r.AddImages(&s, pl)
		assert.Nil(t, s.Images[0].RetryAt, "there is no daemon")
		s = status.Status{}
		r.AddImages(&s, offered())
		assert.Nil(t, s.Images[0].RetryAt, "it is not staged again")
	}
}

func TestSourceStatus(t *testing.T) {
	t.Parallel()
	assert.NotNil(t, report.SourceStatus(record.Record{}))
	got := report.SourceStatus(record.Record{Sources: record.Entries[record.SourceRecord]{
		"b": {Host: "m:5000", Mirror: true, Skipped: "n", LastSuccess: now, Failures: 1, Error: "b: 503", Reason: "503", Cause: release.CauseServerError, HTTPStatus: 503, RetryAt: now}, "a": {Kind: record.SourceCatalog},
	}})
	assert.Equal(t, []status.SourceStatus{{Repository: "a", Kind: "catalog"}, {
		Repository: "b", Host: "m:5000", Mirror: true, Skipped: "n", LastSuccess: &now, Failures: 1, Error: "b: 503", Reason: "503", Cause: "server error", HTTPStatus: 503, RetryAt: &now,
	}}, got)
}

func TestStandingHolds(t *testing.T) {
	t.Parallel()
	r := newReport()
	assert.NotNil(t, report.StandingHolds(r, current()))
	end := now.Add(time.Hour)
	r.Policy.Freeze = end
	r.Policy.Rule = func(string) policy.Rule { return policy.Rule{Hold: "migration"} }
	r.Record.Holds.Set("r.io/db", record.PersonHold{Reason: "wait", At: now, Until: end})
	r.Record.Holds.Set("r.io/etcd", record.PersonHold{Until: now})
	by := status.Actor{Kind: status.ByConfiguration}
	assert.Equal(t, []status.StandingHold{
		{Repository: "*", Name: "freeze", Reason: "no updates before 2026-05-01T13:00:00Z", Until: &end, By: by, Remedy: "wait for the date; or change apply.freeze and reload", Summary: "The configuration applies nothing before a date."},
		{Repository: "r.io/db", Name: "hold", Reason: "wait", Since: &now, Until: &end, By: status.Actor{Kind: status.ByPerson}, Remedy: "image-update-agent resume db; or wait until it ends", Summary: "wait"},
		{Repository: velum, Name: "hold", Reason: "migration", By: by, Remedy: "remove its `hold` from the configuration and run systemctl reload image-update-agent", Summary: "migration"},
	}, report.StandingHolds(r, current()))
	r.Now = func() time.Time { return end }
	assert.Len(t, report.StandingHolds(r, current()), 1)
}

func TestReleases(t *testing.T) {
	t.Parallel()
	fails := func(f record.Failure) func(*report.Report, *plan.PodPlan) {
		return func(r *report.Report, p *plan.PodPlan) {
			p.ID = "an offer"
			r.Record.Failed.Set(file, f)
		}
	}
	image := func(edit func(i *plan.ImagePlan)) func(*report.Report, *plan.PodPlan) {
		return func(_ *report.Report, p *plan.PodPlan) { edit(&p.Images[0]) }
	}
	for name, c := range map[string]struct {
		plan     plan.Plan
		edit     func(*report.Report, *plan.PodPlan)
		one, two status.ReleaseState // "": not listed
	}{
		"current":    {current(), func(*report.Report, *plan.PodPlan) {}, "running", ""},
		"staged":     {offered(), func(*report.Report, *plan.PodPlan) {}, "running", "staged"},
		"not staged": {offered(), image(func(i *plan.ImagePlan) { i.Staged = false }), "running", "offered"},
		"its time in the rollout has not come": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Waits = []status.Hold{{Name: status.HoldRollout}}
		}, "running", "staged"},
		"a person's hold": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Holds = []status.Hold{{Name: status.HoldRequested}}
		}, "running", "held"},
		"a freeze": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Waits = []status.Hold{{Name: status.HoldFreeze}}
		}, "running", "held"},
		"nothing is offered": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Holds = []status.Hold{{Name: status.HoldUnresolved}}
		}, "running", ""},
		"denied": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, two), record.Denial{Name: "4.0.0-rev2", PodManifest: file})
		}, "running", "failed"},
		"denied, and replaced since": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, two), record.Denial{PodManifest: file, Past: true})
		}, "running", ""},
		"denied, of another image": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key("r.io/other", two), record.Denial{PodManifest: file})
		}, "running", ""},
		"denied, but runs": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, one), record.Denial{PodManifest: file})
		}, "failed", ""},
		"its apply failed":         {offered(), fails(record.Failure{Offer: "an offer"}), "running", "failed"},
		"another apply had failed": {offered(), fails(record.Failure{Offer: "another"}), "running", "staged"},
		"without an apply":         {current(), fails(record.Failure{Running: "one"}), "failed", ""},
		"down":                     {current(), image(func(i *plan.ImagePlan) { i.Down = &status.Down{} }), "failed", ""},
		"starting":                 {current(), image(func(i *plan.ImagePlan) { i.Down = &status.Down{Starting: true} }), "starting", ""},
		"no container": {current(), image(func(i *plan.ImagePlan) {
			i.Target.Digest, i.Running, i.Down = one, status.Named{}, &status.Down{Absent: true}
		}), "failed", ""},
		"no container before an update": {offered(), func(r *report.Report, p *plan.PodPlan) {
			r.Record.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: one})
			p.Images[0].Running, p.Images[0].Down = status.Named{}, &status.Down{}
		}, "failed", "staged"},
		"one container of two has it": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			done := p.Images[0]
			done.Running, done.Change = status.Named{Digest: two}, ""
			p.Images = append(p.Images, done)
		}, "running", "staged"},
	} {
		r := newReport()
		c.edit(r, &c.plan.Pods[0])
		got := map[string]status.ReleaseState{}
		for _, is := range r.Releases(c.plan) {
			assert.Equal(t, velum, is.Image, name)
			got[is.Digest.String()] = is.State
		}
		want := map[string]status.ReleaseState{}
		for of, state := range map[string]status.ReleaseState{one.String(): c.one, two.String(): c.two} {
			if state != "" {
				want[of] = state
			}
		}
		assert.Equal(t, want, got, name)
	}
	assert.NotNil(t, newReport().Releases(plan.Plan{}))
}
