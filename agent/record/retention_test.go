// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// runs returns a pod that runs a digest, and whose offer is "offer".
func runs(d digest.Digest) record.PodInUse {
	disk := "on disk"
	return record.PodInUse{
		ID: "offer", Offer: "offer", AllRun: true, OnDisk: &disk, Contains: map[string]bool{"velum": true},
		Images: []record.ImageInUse{{Container: "velum", Place: place, IsContainer: true, Repository: velum, Running: d, Target: d, RunsWell: true}},
	}
}

func TestRetain(t *testing.T) {
	t.Parallel()
	key := record.GoodKey(file, "velum")
	with := func(change func(*record.PodInUse)) map[string]record.PodInUse {
		p := runs(one)
		change(&p)
		return map[string]record.PodInUse{file: p}
	}
	same := with(func(*record.PodInUse) {})
	good := func(r *record.Record) { r.Good.Set(key, record.Good{Repository: velum, Running: one}) }
	approved := func(at time.Time) func(*record.Record) {
		return func(r *record.Record) { good(r); r.Approved.Set(file, record.Approval{At: at, Offer: "offer"}) }
	}
	failed := func(f record.Failure) func(*record.Record) { return func(r *record.Record) { r.Failed.Set(file, f) } }
	back := func(r *record.Record) { r.HeldBack.Set(file, record.HeldApply{At: now, Offer: "offer"}) }
	override := func(o record.Override, denied bool) func(*record.Record) {
		return func(r *record.Record) {
			o.Images = map[string]record.PinnedImage{place: {Pin: pin(one)}}
			r.Overrides.Set(file, o)
			if denied {
				r.Denied.Set(release.Key(velum, two), record.Denial{At: now, PodManifest: file})
			}
		}
	}
	kept := map[string]func(*record.Record) int{
		"good": func(r *record.Record) int { return len(r.Good) }, "approved": func(r *record.Record) int { return len(r.Approved) },
		"failed": func(r *record.Record) int { return len(r.Failed) }, "held": func(r *record.Record) int { return len(r.HeldBack) },
		"override": func(r *record.Record) int { return len(r.Overrides) }, "hold": func(r *record.Record) int { return len(r.Holds) },
	}
	for name, c := range map[string]struct {
		of   string
		is   func(*record.Record)
		pods map[string]record.PodInUse
		want bool
	}{
		"what ran well":                                 {"good", good, same, true},
		"in a pod that is gone":                         {"good", good, nil, false},
		"in a container that is gone":                   {"good", good, with(func(p *record.PodInUse) { p.Contains = map[string]bool{} }), false},
		"in a pod that cannot be read":                  {"good", good, with(func(p *record.PodInUse) { p.Broken, p.Contains = true, map[string]bool{} }), true},
		"in a pod of which nothing is known":            {"good", good, with(func(p *record.PodInUse) { p.Contains = nil }), true},
		"an approval":                                   {"approved", approved(now), same, true},
		"of a day ago":                                  {"approved", approved(now.Add(-25 * time.Hour)), same, false},
		"of another offer":                              {"approved", approved(now), with(func(p *record.PodInUse) { p.Offer, p.ID = "x", "x" }), false},
		"that was applied":                              {"approved", approved(now), with(func(p *record.PodInUse) { p.Offer = "" }), false},
		"that was applied, and is not verified healthy": {"approved", approved(now), with(func(p *record.PodInUse) { p.Offer, p.Images[0].Running = "", two }), true},
		"of a held pod":                                 {"approved", approved(now), with(func(p *record.PodInUse) { p.Held = true }), false},
		"of a pod that is gone":                         {"approved", approved(now), nil, false},
		"a failed apply":                                {"failed", failed(record.Failure{Offer: "offer"}), same, true},
		"something else is offered":                     {"failed", failed(record.Failure{Offer: "x"}), same, false},
		"the offer is not known":                        {"failed", failed(record.Failure{Offer: "x"}), with(func(p *record.PodInUse) { p.ID = "" }), true},
		"it runs as wanted":                             {"failed", failed(record.Failure{Offer: "offer"}), with(func(p *record.PodInUse) { p.Settled = true }), false},
		"a failure of what runs":                        {"failed", failed(record.Failure{Running: "x"}), with(func(p *record.PodInUse) { p.AllRun = false }), true},
		"which runs now":                                {"failed", failed(record.Failure{Running: "x"}), same, false},
		"which is gone":                                 {"failed", failed(record.Failure{Running: "x"}), nil, false},
		"a held apply":                                  {"held", back, same, true},
		"of something else":                             {"held", back, with(func(p *record.PodInUse) { p.Offer = "x" }), false},
		"its source has answered":                       {"held", func(r *record.Record) { back(r); r.Sources.Set(velum, record.SourceRecord{LastSuccess: now.Add(1)}) }, same, false},
		"a rollback that is pending":                    {"override", override(record.Override{Pending: true}, false), same, true},
		"whose pod was edited":                          {"override", override(record.Override{Pending: true, From: "x"}, false), same, false},
		"whose pod is gone":                             {"override", override(record.Override{}, false), with(func(p *record.PodInUse) { p.OnDisk = nil }), false},
		"a rollback":                                    {"override", override(record.Override{}, true), same, true},
		"of which all was replaced":                     {"override", override(record.Override{}, true), with(func(p *record.PodInUse) { p.Images[0].Target = two }), false},
		"of which that is not clear":                    {"override", override(record.Override{}, true), with(func(p *record.PodInUse) { p.Images[0].Target, p.Unclear = two, true }), true},
		"the registry was away, and an edit":            {"override", override(record.Override{}, false), same, false},
		"the registry was away":                         {"override", override(record.Override{}, false), with(func(p *record.PodInUse) { d := "@" + one.String(); p.OnDisk = &d }), true},
		"a hold":                                        {"hold", func(r *record.Record) { r.Holds.Set("*", record.PersonHold{}) }, nil, true},
		"a hold that has ended":                         {"hold", func(r *record.Record) { r.Holds.Set("*", record.PersonHold{Until: now}) }, nil, false},
	} {
		var r record.Record
		c.is(&r)
		r.Retain(record.InUse{Pods: c.pods, Releases: map[string]bool{release.Key(velum, two): true}}, now)
		assert.Equal(t, c.want, kept[c.of](&r) == 1, "%s: %s", c.of, name)
	}
}

// Questions and descriptions stay as long as they are used; so do rollback targets.
func TestRetainReleases(t *testing.T) {
	t.Parallel()
	var r record.Record
	for _, d := range []digest.Digest{one, two, three} {
		key := release.Key(velum, d)
		r.Releases.Set(key, release.Release{})
		r.Signed.Set(key, "key")
		r.Unsigned.Set(key, record.Unsigned{})
		r.MinSpace.Set(key, 1)
	}
	r.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: "x", Before: []release.Pin{pin(two)}})
	r.Offers.Set("a", record.Answer{})
	r.Offers.Set("b", record.Answer{})
	r.Wrote.Set(file, one)
	r.Wrote.Set("db.yaml", one)
	r.Retain(record.InUse{
		Pods: map[string]record.PodInUse{file: runs(one)}, Wrote: map[string]bool{file: true}, Questions: map[string]bool{"a": true},
		Releases: map[string]bool{release.Key(velum, one): true},
	}, now)
	assert.Len(t, r.Releases, 2)
	assert.NotContains(t, r.Releases, release.Key(velum, three))
	assert.Len(t, r.Signed, 2)
	assert.Len(t, r.Unsigned, 2)
	assert.Len(t, r.MinSpace, 2)
	assert.Len(t, r.Offers, 1)
	assert.Len(t, r.Wrote, 1)
}

func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	var r record.Record
	of := func(n int) string { return release.Key(velum, digest.FromString(string(rune('a'+n)))) }
	for n := range 40 {
		r.Denied.Set(of(n), record.Denial{At: now.AddDate(0, 0, -n)})
	}
	r.Denied.Set(release.Key(velum, one), record.Denial{At: now.AddDate(-1, 0, 0), PodManifest: file})
	old := release.Key("r.io/db", one)
	r.Denied.Set(old, record.Denial{At: now.AddDate(0, 0, -91)})
	use := record.InUse{Releases: map[string]bool{release.Key(velum, one): true}, Newest: map[string]time.Time{}}
	r.Retain(use, now)
	assert.Len(t, r.Denied, 33)
	assert.Equal(t, now.Truncate(24*time.Hour), r.Denied[release.Key(velum, one)].Named, "it runs")
	assert.Contains(t, r.Denied, of(31))
	assert.NotContains(t, r.Denied, of(32))
	assert.NotContains(t, r.Denied, old)

	for created, past := range map[time.Time]bool{now.AddDate(0, -1, 0): true, now.AddDate(0, 0, -1): false, {}: true} {
		r = record.Record{}
		r.Denied.Set(of(0), record.Denial{At: now, Created: created})
		r.Retain(record.InUse{Releases: map[string]bool{}, Newest: map[string]time.Time{velum: now.AddDate(0, 0, -2)}}, now)
		assert.Equal(t, past, r.Denied[of(0)].Past, "a newer one has replaced it: %s", created)
	}
}

// The lock is kept while a pod that was restarted under it is not known to be good.
func TestLockIsKeptForAPodThatFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*record.PodInUse, *record.Record)
		due    bool
		failed int
	}{
		"all is well":                {func(*record.PodInUse, *record.Record) {}, true, 0},
		"it does not run":            {func(p *record.PodInUse, _ *record.Record) { p.AllRun = false }, false, 0},
		"it cannot be read":          {func(p *record.PodInUse, _ *record.Record) { p.Broken = true }, false, 0},
		"it is not verified healthy": {func(p *record.PodInUse, _ *record.Record) { p.Images[0].Running = two }, false, 0},
		"it did not come up":         {func(_ *record.PodInUse, r *record.Record) { r.Failed.Set(file, record.Failure{Running: "x"}) }, false, 1},
		"it failed before":           {func(_ *record.PodInUse, r *record.Record) { r.Failed.Set(file, record.Failure{Offer: "x"}) }, true, 0},
		"it is to be returned":       {func(_ *record.PodInUse, r *record.Record) { r.Overrides.Set(file, record.Override{Pending: true}) }, false, 1},
		"its set has begun": {func(_ *record.PodInUse, r *record.Record) {
			r.Sets.Set("s", record.BegunSet{Pods: map[string]record.SetPod{file: {}}})
		}, false, 0},
	} {
		r := record.Record{Lock: fleet.LockRecord{State: fleet.LockHeld, Pods: []string{file}}}
		r.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: one})
		p := runs(one)
		c.change(&p, &r)
		assert.Equal(t, c.due, r.IsLockDue(record.InUse{Pods: map[string]record.PodInUse{file: p}}, now), name)
		assert.Len(t, r.FailedUnderLock(), c.failed, name)
		assert.Equal(t, c.failed > 0, r.LockStatus(fleet.Lock{Pods: fleet.LockAll}).Kept, name)
	}
	assert.Nil(t, new(record.Record).LockStatus(fleet.Lock{}))
	assert.Empty(t, new(record.Record).FailedUnderLock())
}
