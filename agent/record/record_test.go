// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const (
	velum = "r.io/velum"
	file  = "velum.yaml"
	place = "container velum"
)

var (
	now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

	one, two, three = digest.FromString("1"), digest.FromString("2"), digest.FromString("3")
)

func pin(d digest.Digest) release.Pin { return release.Pin{Repository: velum, Digest: d} }

func TestEntries(t *testing.T) {
	t.Parallel()
	var e record.Entries[int]
	undo := e.Undo("a")
	e.Set("a", 1)
	undo()
	assert.Empty(t, e)
	e.Set("a", 1)
	undo = e.Undo("a")
	e.Set("a", 2)
	undo()
	e.Set("b", 3)
	assert.Equal(t, record.Entries[int]{"a": 1, "b": 3}, e)
	e.Retain(map[string]bool{"b": true, "c": true})
	assert.Equal(t, record.Entries[int]{"b": 3}, e)
}

func TestTimesOfApprovalsAndHolds(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]bool{0: true, 24 * time.Hour: true, 25 * time.Hour: false, -time.Minute: true, -time.Hour: false} {
		assert.Equal(t, want, record.Approval{At: now.Add(-age)}.IsValid(now), age)
	}
	var r record.Record
	assert.True(t, r.IsHeld(record.PersonHold{}, now))
	assert.True(t, r.IsHeld(record.PersonHold{Until: now.Add(1)}, now))
	assert.False(t, r.IsHeld(record.PersonHold{Until: now}, now))
}

// A release that did not come up is refused under every name, until a person allows it.
func TestDenials(t *testing.T) {
	t.Parallel()
	var r record.Record
	key := release.Key(velum, one)
	r.Denied.Set(key, record.Denial{PodManifest: file, Name: "4.0.0-rev1", Reason: "it crashes"})
	r.Denied.Set(release.Key("r.io/db", two), record.Denial{PodManifest: "db.yaml"})
	r.Failed.Set(file, record.Failure{Offer: "x"})
	r.Overrides.Set(file, record.Override{Pending: true})
	r.Overrides.Set("db.yaml", record.Override{Reason: "done"})
	no, denied := r.Denies(release.Release{Repository: "m.local/velum", Tag: "other", Digest: one})
	assert.True(t, denied)
	assert.Equal(t, policy.Refusal{Tag: "other", Rule: policy.RuleFailed, Reason: "velum.yaml: it crashes"}, no)
	_, denied = r.Denies(release.Release{Digest: three})
	assert.False(t, denied)
	_, denied = r.Denies(release.Release{})
	assert.False(t, denied)
	assert.True(t, r.HasFailed(velum, "4.0.0-rev1"))
	assert.False(t, r.HasFailed(velum, "4.0.0-rev2"))
	assert.False(t, r.HasFailed("r.io/db", "4.0.0-rev1"))

	was := r.Denials()
	r.Allow(file, []string{key})
	assert.Len(t, r.Denied, 1)
	assert.Empty(t, r.Failed)
	assert.Len(t, r.Overrides, 1, "a rollback that is done stays")
	r.Deny(was, "db.yaml")
	assert.Len(t, r.Denied, 1, "nothing of that was allowed")
	r.Deny(was, file)
	assert.Equal(t, was, r.Denials(), "as before")
	r.Allow(file, []string{key})
	r.Deny(was, "")
	assert.Equal(t, was, r.Denials())
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	var r record.Record
	rel := release.Release{Repository: velum, Tag: "1", Digest: one}
	_, refused := r.Refuses(rel, policy.Rule{})
	assert.False(t, refused)
	r.Unsigned.Set(release.Key(velum, one), record.Unsigned{Reason: "not signed", RetryAt: now})
	_, refused = r.Refuses(rel, policy.Rule{Signatures: policy.SignaturesWarn})
	assert.False(t, refused)
	required := policy.Rule{Signatures: policy.SignaturesRequire}
	no, refused := r.Refuses(rel, required)
	assert.True(t, refused)
	assert.Equal(t, policy.Refusal{
		Tag: "1", Rule: policy.RuleSignature, RetryAt: now, Reason: "not signed; next try at 2026-05-01T12:00:00Z",
	}, no)
	r.Denied.Set(release.Key(velum, one), record.Denial{})
	no, _ = r.Refuses(rel, required)
	assert.Equal(t, policy.RuleFailed, no.Rule)
	required.Deny = []string{"*"}
	no, _ = r.Refuses(rel, required)
	assert.Equal(t, policy.RuleDeny, no.Rule)
}

func TestKnownGoodReleases(t *testing.T) {
	t.Parallel()
	var r record.Record
	note := func(i record.ImageInUse, keep int) record.Good {
		i.Container, i.Repository = "velum", velum
		r.NoteRunning(map[string]record.PodInUse{file: {Images: []record.ImageInUse{i}}}, keep)
		return r.Good[record.GoodKey(file, "velum")]
	}
	assert.Zero(t, note(record.ImageInUse{Running: one}, 1), "it does not run well")
	assert.Zero(t, note(record.ImageInUse{Running: one, RunsWell: true, Restarts: true}, 1), "it was restarted just now")
	assert.Equal(t, record.Good{Repository: velum, Running: one}, note(record.ImageInUse{Running: one, RunsWell: true}, 1))
	assert.Equal(t, one, note(record.ImageInUse{Running: two, RunsWell: true}, 1).Running, "another one needs a health check")
	r.Releases.Set(release.Key(velum, one), release.Release{Build: release.Build{Config: "c"}})
	assert.Equal(t, three, note(record.ImageInUse{Running: three, Config: "c", RunsWell: true}, 1).Running, "the same image under another digest")

	verify := func(d digest.Digest, pickedUp bool, keep int) record.Good {
		r.NoteHealthy(file, []record.Healthy{{Container: "velum", Place: place, Pin: pin(d)}}, pickedUp, keep)
		return r.Good[record.GoodKey(file, "velum")]
	}
	assert.Equal(t, record.Good{Repository: velum, Running: two, PickedUp: true, Before: []release.Pin{pin(three), pin(one)}}, verify(two, true, 2))
	assert.True(t, verify(two, false, 2).PickedUp, "it is good already")
	assert.Equal(t, record.Good{Repository: velum, Running: one, Before: []release.Pin{pin(two), pin(three)}}, verify(one, false, 2), "each target once")
	assert.True(t, r.HasTarget(file, "velum", one))
	assert.Empty(t, verify(two, false, 0).Before, "no target is kept")
	assert.False(t, r.HasTarget(file, "velum", two))
	assert.True(t, r.HasTarget(file, "velum", one))
	assert.False(t, r.HasTarget(file, "db", one))
	assert.False(t, r.IsGood(r.Good[record.GoodKey(file, "velum")], "r.io/db", two, ""))

	verify(one, false, 2)
	r.DropTarget(file, "velum", pin(two))
	r.DropTarget(file, "db", pin(two))
	assert.Empty(t, r.Good[record.GoodKey(file, "velum")].Before)
}

func TestHistoryKeepsTheLastFifty(t *testing.T) {
	t.Parallel()
	var r record.Record
	for n := range 60 {
		r.History.Add([]status.HistoryEntry{{PodManifest: file, To: string(rune('A' + n)), Reason: "https://user:hunter2@r.io"}})
	}
	require.Len(t, r.History, 50)
	assert.Equal(t, string(rune('A'+59)), r.History[0].To)
	assert.NotContains(t, r.History[0].Reason, "hunter2")
	_, is := r.History.LastFailure(file)
	assert.False(t, is)
	r.History.Add([]status.HistoryEntry{{PodManifest: file, To: "2", Result: status.ResultFailed}, {PodManifest: "db.yaml", Result: status.ResultFailed}})
	last, is := r.History.LastFailure(file)
	assert.True(t, is)
	assert.Equal(t, "2", last.To)
	r.Releases.Set(release.Key(velum, one), release.Release{Tag: "1"})
	assert.Equal(t, "1", r.NameOf(velum, one))
	assert.Equal(t, two.String(), r.NameOf(velum, two))
}

func TestRolledBackFrom(t *testing.T) {
	t.Parallel()
	var r record.Record
	assert.Nil(t, r.RolledBack(file))
	assert.Equal(t, status.KindNotUp, r.FailureKind(file))
	images := map[string]record.PinnedImage{place: {Pin: pin(one), Tag: "1"}, "init setup": {Pin: pin(one), Tag: "1"}}
	r.Overrides.Set(file, record.Override{At: now, Reason: "it crashes", Images: images, Pending: true})
	assert.Nil(t, r.RolledBack(file), "it is pending")
	assert.Equal(t, status.KindStep, r.FailureKind(file))
	r.Overrides.Set(file, record.Override{At: now, Reason: "it crashes", Images: images})
	assert.Nil(t, r.RolledBack(file), "the registry was away: nothing is denied")
	r.Denied.Set(release.Key(velum, two), record.Denial{PodManifest: file, Name: "2", ByHand: true})
	three := digest.FromString("3")
	r.Denied.Set(release.Key(velum, three), record.Denial{PodManifest: file, Name: "3", Created: now, Reason: "it hangs"})
	assert.Equal(t, &status.RolledBack{
		At: now, Reason: "it crashes", Runs: []string{"1"}, Denied: []string{"3", "2"}, ByHand: true,
		Retries: []status.Retry{{Image: velum, Tag: "3", Digest: three, Reason: "it hangs"}},
	}, r.RolledBack(file), "of each image the newest is tried again")
	r.Denied.Set(release.Key(velum, two), record.Denial{PodManifest: file, Name: "2", Created: now, At: now})
	require.Len(t, r.RolledBack(file).Retries, 1)
	assert.Equal(t, "2", r.RolledBack(file).Retries[0].Tag, "of the same age: the one that was denied last")
	assert.Equal(t, status.KindRolledBack, r.FailureKind(file))
	r.Failed.Set(file, record.Failure{Running: "x"})
	assert.Equal(t, status.KindNotUp, r.FailureKind(file))
}

func TestBegunSets(t *testing.T) {
	t.Parallel()
	var r record.Record
	assert.Empty(t, r.SetOf(file))
	r.Sets.Set("s", record.BegunSet{Pods: map[string]record.SetPod{file: {Before: map[string]release.Pin{"velum": pin(one)}}, "db.yaml": {}}})
	assert.Equal(t, "s", r.SetOf(file))
	assert.Equal(t, "s", r.SetOf("db.yaml"))
	assert.Empty(t, r.SetOf("etcd.yaml"))
	assert.Equal(t, []release.Pin{pin(one)}, r.BeforeSets())
}

func TestSources(t *testing.T) {
	t.Parallel()
	wait := func(s record.SourceRecord) any {
		if at, is := s.NextRetry(now); is {
			return at.Sub(now)
		}
		return nil
	}
	assert.Nil(t, wait(record.SourceRecord{RetryAt: now}))
	assert.Equal(t, time.Hour, wait(record.SourceRecord{Failures: 1, RetryAt: now.Add(time.Hour)}))
	assert.Equal(t, 60*time.Hour, wait(record.SourceRecord{Failures: 1, RetryAt: now.Add(60 * time.Hour)}), "a host may ask for that")
	assert.Equal(t, time.Duration(0), wait(record.SourceRecord{Failures: 1, RetryAt: now.Add(73 * time.Hour)}), "the clock was wrong")
	for at, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 25 * time.Hour: 0} {
		got, is := record.Answer{RetryAt: now.Add(at)}.NextRetry(now)
		assert.True(t, is)
		assert.Equal(t, want, got.Sub(now))
	}
	_, is := record.Answer{}.NextRetry(now)
	assert.False(t, is)
	s := record.SourceRecord{Host: "m", Mirror: true, Error: "503", HTTPStatus: 503, Cause: release.CauseServerError, Failures: 2}
	err := s.Err(velum)
	require.EqualError(t, err, "503")
	var of *release.SourceError
	require.ErrorAs(t, err, &of)
	assert.Equal(t, &release.SourceError{Repository: velum, Host: "m", Mirror: true, Status: 503, Cause: release.CauseServerError}, of)

	answered, list := s, s
	answered.LastSuccess, list.List = now, true
	text := func(s record.SourceRecord) string {
		return status.SentenceOf(record.StaleSources(record.Entries[record.SourceRecord]{velum: s}))
	}
	assert.Equal(t, "503 (2 failures, never answered)", text(s))
	assert.Equal(t, "503 (2 failures, last answer 2026-05-01T12:00:00Z)", text(answered))
	assert.Equal(t, "503 (2 failures, newer tags are unknown)", text(list))
	list.LastSuccess = now
	assert.Equal(t, "503 (2 failures, newer tags known until 2026-05-01T12:00:00Z)", text(list))
	list.Refused = true
	assert.Empty(t, text(list))
	assert.Empty(t, text(record.SourceRecord{}))

	confirmed := record.Answer{Follow: release.Release{Digest: one}, Newest: release.Release{Digest: two}, Newer: []record.Candidate{
		{Release: release.Release{Digest: three}, Confirmed: true}, {Release: release.Release{Digest: "x"}}, {Confirmed: true},
	}}.Confirmed()
	assert.Len(t, confirmed, 3)
}

func TestAwaySince(t *testing.T) {
	t.Parallel()
	const suse = "registry.suse.com"
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	before, after := record.SourceRecord{Failures: 2, LastSuccess: april.Add(-time.Hour)}, record.SourceRecord{Failures: 1, LastSuccess: april}
	for title, c := range map[string]struct {
		sources record.Entries[record.SourceRecord]
		want    *time.Time
	}{
		"not asked":                  {},
		"it is another registry's":   {sources: record.Entries[record.SourceRecord]{"registry.suse.com.example/a": after}},
		"none answers":               {record.Entries[record.SourceRecord]{suse + "/a": before, suse + "/b": after}, &april},
		"none has answered":          {sources: record.Entries[record.SourceRecord]{suse + "/a": {Failures: 1}}},
		"another repository answers": {sources: record.Entries[record.SourceRecord]{suse + "/a": after, suse + "/b": {LastSuccess: april}}},
		"its tag list fails alone":   {sources: record.Entries[record.SourceRecord]{suse + "/a": {Failures: 1, LastSuccess: april, List: true}}},
		"a catalog's answers":        {sources: record.Entries[record.SourceRecord]{suse + "/c:prod": {Failures: 1, LastSuccess: april, Kind: record.SourceCatalog}}},
	} {
		assert.Equal(t, c.want, (&record.Record{Sources: c.sources}).AwaySince(suse), title)
	}
}
