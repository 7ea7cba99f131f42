// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/report"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	velum = "r.io/velum"
	file  = "velum.yaml"
)

var (
	now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

	one, two = digest.FromString("1"), digest.FromString("2")

	away = &release.SourceError{Repository: velum, Host: "m:5000", Mirror: true, Status: 503, Cause: release.CauseServerError, Err: errors.New("503")}
)

// image returns an image of velum that runs one.
func image() plan.ImagePlan {
	ask := release.Question{Repository: velum, Tag: "4.0.0"}
	return plan.ImagePlan{
		Want:   follow.Want{Ask: ask, Image: manifests.Image{Container: "velum", Kind: manifests.KindContainer}},
		Offer:  source.Offer{Question: ask, Answer: record.Answer{Follow: release.Release{Repository: velum, Tag: "4.0.0", Digest: one}}},
		Target: release.Release{Repository: velum, Tag: "4.0.0-rev1", Digest: one}, Running: status.Named{Tag: "4.0.0-rev1", Digest: one},
		Staged: true, Well: true, WasThere: true,
	}
}

// current returns a node whose only pod is as wanted.
func current() plan.Plan {
	return plan.Plan{Pods: []plan.PodPlan{{File: file, Pod: "velum", ID: "id", Images: []plan.ImagePlan{image()}}}}
}

// offered returns a node whose pod is offered two.
func offered() plan.Plan {
	pl := current()
	pod := &pl.Pods[0]
	pod.Change, pod.Offer, pod.Ready = "revision", "id", true
	pod.Images[0].Change, pod.Images[0].Target = "revision", release.Release{Repository: velum, Tag: "4.0.0-rev2", Digest: two}
	return pl
}

func newReport() *report.Report {
	return &report.Report{Record: &record.Record{}, Loaded: true, Errs: map[string]error{}, Now: func() time.Time { return now }}
}

// The fields of a reason have all the data of its sentence, for programs.
func TestNodeState(t *testing.T) {
	t.Parallel()
	approval := status.Reason{Kind: status.KindApproval, PodManifest: file, Change: "revision"}
	none := status.Reason{Kind: status.KindNone}
	key := release.Key(velum, one)
	withdrawn := catalog.Listing{Catalog: "r.io/catalog:prod", Version: 1, Images: map[string][]format.Release{
		velum: {{Tag: "4.0.0-rev1", Digest: one, Withdrawn: &format.Withdrawal{Reason: "it leaks", To: "4.0.0-rev2"}}},
	}}
	withdrawal := status.Reason{Kind: status.KindWithdrawn, PodManifest: file, Container: "velum", Image: velum, Tag: "4.0.0-rev1"}
	stale := func(r *report.Report) {
		r.Record.Sources.Set(velum, record.SourceRecord{Host: "m:5000", HTTPStatus: 503, Cause: release.CauseServerError, Failures: 1, Error: "503"})
	}
	noAnswer := status.Reason{Kind: status.KindSource, Image: velum, Host: "m:5000", HTTPStatus: 503, Cause: release.CauseServerError}
	of := func(pl plan.Plan, change func(*plan.PodPlan)) plan.Plan { change(&pl.Pods[0]); return pl }
	hold := func(name string) func(*plan.PodPlan) {
		return func(p *plan.PodPlan) { p.Holds = []status.Hold{{Name: name, Image: velum, Reason: "x"}} }
	}
	wait := func(name string) func(*plan.PodPlan) {
		return func(p *plan.PodPlan) { p.Waits = []status.Hold{{Name: name, Reason: "x"}} }
	}
	held := func(name, image string) status.Reason {
		return status.Reason{Kind: status.KindHold, PodManifest: file, Image: image, Hold: name}
	}
	unresolved := func(err error, wasThere bool) func(*plan.PodPlan) {
		return func(p *plan.PodPlan) {
			p.Images[0].Offer.Follow, p.Images[0].Offer.Err, p.Images[0].WasThere = release.Release{}, err, wasThere
		}
	}
	down := func(starting bool) func(*plan.PodPlan) {
		return func(p *plan.PodPlan) { p.Images[0].Down = &status.Down{Starting: starting} }
	}
	gone := status.Reason{PodManifest: file, Image: velum, Tag: "4.0.0", ErrorKind: status.ErrorNotFound}
	tagGone, tagNotFound := gone, gone
	tagGone.Kind, tagNotFound.Kind = status.KindTagGone, status.KindTagNotFound
	isDown := status.Reason{Kind: status.KindDown, PodManifest: file, Container: "velum", Image: velum}
	nothing := func(*report.Report) {}
	step := func(key string, err error) func(*report.Report) { return func(r *report.Report) { r.Errs[key] = err } }
	for name, c := range map[string]struct {
		plan  plan.Plan
		with  func(*report.Report)
		state status.State
		want  []status.Reason
	}{
		"nothing to do":       {current(), nothing, "current", []status.Reason{none}},
		"nothing is followed": {plan.Plan{}, nothing, "current", []status.Reason{none}},
		"an offer":            {offered(), nothing, "staged", []status.Reason{approval}},
		"an offer whose apply was held": {offered(), func(r *report.Report) {
			r.Record.HeldBack.Set(file, record.HeldApply{Reason: "busy", Kind: status.ErrorHeld})
		}, "staged", []status.Reason{{Kind: status.KindApproval, PodManifest: file, Change: "revision", Held: "busy", ErrorKind: status.ErrorHeld}}},
		"an offer that is not staged":         {of(offered(), func(p *plan.PodPlan) { p.Ready = false }), nothing, "current", []status.Reason{none}},
		"a hold":                              {of(offered(), hold("hold")), nothing, "held", []status.Reason{held("hold", velum)}},
		"what mode auto waits for":            {of(offered(), wait("window")), nothing, "held", []status.Reason{held("window", "")}},
		"an unmanaged pod":                    {of(offered(), hold("unmanaged")), nothing, "held", []status.Reason{held("unmanaged", "")}},
		"a source that does not answer":       {current(), stale, "stale", []status.Reason{noAnswer}},
		"an offer and a source":               {offered(), stale, "stale", []status.Reason{noAnswer, approval}},
		"a source that has never answered":    {of(of(current(), unresolved(away, false)), hold("unresolved")), stale, "held", []status.Reason{held("unresolved", velum)}},
		"no source was asked":                 {of(of(current(), unresolved(release.ErrNotAsked, false)), hold("unresolved")), nothing, "unchecked", []status.Reason{{Kind: status.KindUnasked, PodManifest: file}}},
		"no source was asked, and stale":      {of(of(current(), unresolved(release.ErrNotAsked, false)), hold("unresolved")), stale, "stale", []status.Reason{noAnswer}},
		"an image of the configuration":       {plan.Plan{Tracked: []plan.ImagePlan{{Offer: unanswered(release.ErrNotAsked)}}}, nothing, "unchecked", []status.Reason{{Kind: status.KindUnasked, Image: velum}}},
		"which has no space":                  {plan.Plan{Tracked: []plan.ImagePlan{{Target: release.Release{Repository: velum}, Holds: []status.Hold{{Name: "disk"}}}}}, nothing, "held", []status.Reason{{Kind: status.KindHold, Image: velum, Hold: "disk"}}},
		"a tag that is gone":                  {of(current(), unresolved(release.ErrNotFound, true)), nothing, "failed", []status.Reason{tagGone}},
		"a tag that never was there":          {of(current(), unresolved(release.ErrNotFound, false)), nothing, "failed", []status.Reason{tagNotFound}},
		"a pod manifest that cannot be read":  {of(current(), func(p *plan.PodPlan) { p.Err = errors.New("x") }), nothing, "failed", []status.Reason{{Kind: status.KindManifest, PodManifest: file, ErrorKind: "other"}}},
		"what cannot be staged":               {offered(), step(release.Key(velum, two), errors.New("x")), "failed", []status.Reason{{Kind: status.KindStep, Image: velum, ErrorKind: "other"}, approval}},
		"what has no space":                   {current(), step(release.Key(velum, two), &policy.ShortageError{}), "held", []status.Reason{{Kind: status.KindStep, Image: velum, ErrorKind: "disk"}}},
		"a grain that cannot be set":          {current(), step(report.GrainKey, release.ErrConflict), "held", []status.Reason{{Kind: status.KindStep, ErrorKind: "conflict"}}},
		"an apply that a hold ended":          {current(), step(file, &release.HoldError{Hold: "quorum", Err: errors.New("x")}), "held", []status.Reason{{Kind: "hold", PodManifest: file, Hold: "quorum", ErrorKind: "held"}}},
		"it did not come up":                  {current(), step(file, &release.UnhealthyError{Reason: "x"}), "failed", []status.Reason{{Kind: status.KindNotUp, PodManifest: file, ErrorKind: "not-up"}}},
		"it did not come up, in a later look": {current(), func(r *report.Report) { r.Record.Failed.Set(file, record.Failure{Running: "x"}) }, "failed", []status.Reason{{Kind: status.KindNotUp, PodManifest: file}}},
		"its apply failed":                    {current(), func(r *report.Report) { r.Record.Failed.Set(file, record.Failure{Offer: "id"}) }, "failed", []status.Reason{{Kind: status.KindStep, PodManifest: file}}},
		"the apply of another offer failed":   {current(), func(r *report.Report) { r.Record.Failed.Set(file, record.Failure{Offer: "x"}) }, "current", []status.Reason{none}},
		"it was rolled back":                  {current(), rolledBack(false), "failed", []status.Reason{{Kind: status.KindRolledBack, PodManifest: file, Tag: "4.0.0-rev2"}}},
		"it was rolled back in this cycle": {current(), func(r *report.Report) { rolledBack(false)(r); r.Errs[file] = &release.UnhealthyError{} }, "failed", []status.Reason{
			{Kind: status.KindRolledBack, PodManifest: file, ErrorKind: "not-up"},
		}},
		"another failed, and mode auto leaves it": {of(offered(), wait("control-plane")), step("b.yaml", errors.New("x")), "failed", []status.Reason{
			{Kind: status.KindStep, PodManifest: "b.yaml", ErrorKind: "other"}, approval,
		}},
		"and mode auto leaves it":           {of(offered(), wait("control-plane")), nothing, "held", []status.Reason{held("control-plane", "")}},
		"a person rolled it back":           {current(), rolledBack(true), "current", []status.Reason{none, {Kind: status.KindRolledBack, PodManifest: file}}},
		"it is down":                        {of(current(), down(false)), nothing, "failed", []status.Reason{isDown}},
		"it is down, with an offer":         {of(offered(), down(false)), nothing, "failed", []status.Reason{isDown, approval}},
		"it starts":                         {of(current(), down(true)), nothing, "applying", []status.Reason{isDown}},
		"what runs was withdrawn":           {current(), func(r *report.Report) { r.Catalog = withdrawn }, "failed", []status.Reason{withdrawal}},
		"what runs was withdrawn, an offer": {offered(), func(r *report.Report) { r.Catalog = withdrawn }, "staged", []status.Reason{withdrawal, approval}},
		"and it is held":                    {of(offered(), hold("hold")), func(r *report.Report) { r.Catalog = withdrawn }, "held", []status.Reason{withdrawal, held("hold", velum)}},
		"and a source does not answer":      {current(), func(r *report.Report) { stale(r); r.Catalog = withdrawn }, "stale", []status.Reason{withdrawal, noAnswer}},
		"what runs is denied": {current(), func(r *report.Report) { r.Record.Denied.Set(key, record.Denial{Name: "4.0.0-rev1", Reason: "x"}) }, "failed", []status.Reason{
			{Kind: status.KindDenied, PodManifest: file, Container: "velum", Image: velum, Tag: "4.0.0-rev1"},
		}},
		"a catalog that has expired": {current(), func(r *report.Report) {
			r.Catalog = catalog.Listing{Catalog: "r.io/catalog:prod", Version: 1, Expires: now}
		}, "stale", []status.Reason{{Kind: status.KindCatalog, Image: "r.io/catalog:prod"}}},
		"whose end is ignored": {current(), func(r *report.Report) {
			r.Catalog = catalog.Listing{Catalog: "r.io/catalog:prod", Version: 1, Expires: now}
			r.Policy.Catalog.IgnoreExpiry = true
		}, "current", []status.Reason{none}},
		"a catalog that was refused": {current(), func(r *report.Report) {
			r.Catalog = catalog.Listing{Catalog: "r.io/catalog:prod", Version: 1}
			r.Record.Sources.Set("r.io/catalog:prod", record.SourceRecord{Refused: true, Failures: 1, Error: "older"})
		}, "failed", []status.Reason{{Kind: status.KindCatalog, Image: "r.io/catalog:prod", ErrorKind: status.ErrorCatalog}}},
		"a lock that is not taken back": {current(), func(r *report.Report) {
			r.Policy.Lock.Pods = fleet.LockAll
			r.Record.Lock = fleet.LockRecord{State: fleet.LockReleasing, Error: "503", Host: "lock", Status: 503}
		}, "failed", []status.Reason{{Kind: status.KindUnlock, Host: "lock", HTTPStatus: 503}}},
		"a lock that is kept": {current(), func(r *report.Report) {
			r.Policy.Lock.Pods = fleet.LockAll
			r.Record.Lock = fleet.LockRecord{State: fleet.LockHeld, Pods: []string{file}}
			r.Record.Failed.Set(file, record.Failure{Running: "x"})
		}, "failed", []status.Reason{{Kind: status.KindNotUp, PodManifest: file}, {Kind: status.KindLock, PodManifest: file}}},
		"a pod that waits for the lock": {of(offered(), wait("lock")), step(file, release.ErrHeld), "held", []status.Reason{held("lock", "")}},
		"a local registry that is lost": {current(), func(r *report.Report) {
			r.LocalRegistry = &localregistry.Status{Lost: []localregistry.LostRegistry{{Registry: "r.io"}}, WantedError: "x"}
		}, "failed", []status.Reason{{Kind: status.KindLocalRegistry}, {Kind: status.KindLocalRegistry, Host: "r.io"}}},
		"something newer is awaited": {of(current(), func(p *plan.PodPlan) {
			p.Images[0].Offer.Refused = []policy.Refusal{{Tag: "4.0.0-rev2", Rule: "publishing", Holds: true}, {Tag: "5", Rule: "deny"}}
		}), nothing, "held", []status.Reason{{Kind: status.KindAwaited, PodManifest: file, Image: velum, Tag: "4.0.0-rev2", Rule: "publishing"}}},
		"why nothing is offered": {of(current(), func(p *plan.PodPlan) {
			p.Images[0].NotAllowed = []policy.Refusal{{Tag: "5", Rule: "updates"}}
			p.Images[0].Offer.NoList = &record.NoList{Host: "m:5000", HTTPStatus: 401, Cause: release.CauseAuth}
			p.Images[0].Offer.LooksNewer = []tags.NotUnderstood{{Tag: "4-ubi9"}, {Tag: "4-ubi10"}}
			p.Images[0].RebuildsOnly = &status.RebuildsOnly{Tag: "latest"}
		}), nothing, "current", []status.Reason{
			none,
			{Kind: status.KindNotAllowed, Image: velum, Tag: "5", Rule: "updates"},
			{Kind: status.KindNoTagList, Image: velum, Host: "m:5000", HTTPStatus: 401, Cause: release.CauseAuth},
			{Kind: status.KindLooksNewer, Image: velum, Tag: "4-ubi9"},
			{Kind: status.KindRebuildsOnly, Image: velum, Tag: "latest"},
		}},
	} {
		r := newReport()
		c.with(r)
		state, reasons := r.NodeState(c.plan)
		var got []status.Reason
		for _, reason := range reasons {
			assert.NotEmpty(t, reason.Text, name)
			reason.Text, reason.Digest, reason.Since, reason.Until, reason.RetryAt = "", "", time.Time{}, time.Time{}, time.Time{}
			got = append(got, reason)
		}
		assert.Equal(t, c.state, state, name)
		assert.Equal(t, c.want, got, name)
	}
}

func unanswered(err error) source.Offer {
	return source.Offer{Question: release.Question{Repository: velum}, Err: err}
}

func rolledBack(byHand bool) func(*report.Report) {
	return func(r *report.Report) {
		r.Record.Overrides.Set(file, record.Override{Images: map[string]record.PinnedImage{"container velum": {Tag: "4.0.0-rev1"}}})
		r.Record.Denied.Set(release.Key(velum, two), record.Denial{PodManifest: file, Name: "4.0.0-rev2", ByHand: byHand})
		r.Record.History.Add([]status.HistoryEntry{{PodManifest: file, Container: "velum", Image: velum, From: "a", To: "b", Cause: "not-up", Result: "failed"}})
	}
}

func TestTextsOfReasons(t *testing.T) {
	t.Parallel()
	r := newReport()
	r.Catalog = catalog.Listing{Images: map[string][]format.Release{
		velum: {{Tag: "4.0.0-rev1", Digest: one, Withdrawn: &format.Withdrawal{Reason: "it leaks", To: "4.0.0-rev2"}}},
	}}
	_, reasons := r.NodeState(offered())
	assert.Equal(t, "velum.yaml: 4.0.0-rev1 is running but was withdrawn: it leaks (instead: 4.0.0-rev2); waiting for approval: velum.yaml (revision)", status.SentenceOf(reasons))
	pl := current()
	pl.Pods[0].Images[0].NotAllowed = []policy.Refusal{{Tag: "5", Rule: "updates"}}
	pl.Pods[0].Images[0].RebuildsOnly = &status.RebuildsOnly{Tag: "latest"}
	_, reasons = newReport().NodeState(pl)
	assert.Equal(t, "nothing to apply; newer but not allowed: velum 5 (updates); rebuilds only: velum latest", status.SentenceOf(reasons))
	_, reasons = newReport().NodeState(plan.Plan{})
	assert.Equal(t, "no image to follow", status.SentenceOf(reasons))
	pl = current()
	pl.Pods[0].Images[0].Offer = unanswered(release.ErrNotFound)
	pl.Pods[0].Images[0].Want.Ask.Convert = true
	r = newReport()
	r.Policy.Rule = func(string) policy.Rule { return policy.Rule{Follow: "4.0.0"} }
	_, reasons = r.NodeState(pl)
	assert.Equal(t, "velum.yaml: the registry does not have the tag that the configuration follows (follow: 4.0.0): not found", reasons[0].Text)
}

func TestAnnouncement(t *testing.T) {
	t.Parallel()
	pl := offered()
	pl.Pods = append(pl.Pods, pl.Pods[0], plan.PodPlan{File: "db.yaml", Ready: true, Change: policy.ChangeRemove, Images: pl.Pods[0].Images})
	pl.Pods[1].Images = []plan.ImagePlan{pl.Pods[0].Images[0], image()}
	updates := report.UpdatesOf(pl)
	want := []status.AnnouncedUpdate{{Image: velum, Change: "revision", From: "4.0.0-rev1", To: "4.0.0-rev2", Digest: two}}
	assert.Equal(t, want, updates, "each once")
	r := newReport()
	rolledBack(false)(r)
	got := r.Announcement(pl, updates)
	assert.Equal(t, "failed", got.State)
	assert.Contains(t, got.Reason, "4.0.0-rev2 was rolled back")
	assert.Equal(t, want, got.Updates)
	pl = current()
	pl.Pods[0].Ready, pl.Pods[0].Waiting, pl.Pods[0].Change = true, true, policy.ChangeConvert
	pl.Pods[0].Images[0].Want.OnDisk = release.Reference{Repository: velum}
	require.Len(t, report.UpdatesOf(pl), 1)
	assert.Equal(t, "convert", report.UpdatesOf(pl)[0].Change, "the pull policy alone")
	assert.Empty(t, report.UpdatesOf(plan.Plan{}))
}
