// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// An auditor sees who changed what and with which key, also after all ops and old versions are deleted.
func TestLogSurvivesPrune(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, _ := newKey(t)
	as := func(by string, now time.Time) *publish.Publisher {
		return r.publisher(func(o *publish.Options) {
			at(now)(o)
			o.Keys, o.By, o.Run = []*publish.Key{parsedKey(t, private)}, by, "https://ci.example.com/runs/7"
		})
	}
	p := as("anna", noon.Add(-72*time.Hour))
	r.begin(p, "prod")
	d := r.push("velum", "one", "4.0.0-rev1-build1.1")
	_, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	p = as("bert", noon.Add(-48*time.Hour))
	r.gone(p, "prod", "velum:4.0.0-rev1-build1.1")
	p = as("cron", noon)
	deleted, err := p.Prune(t.Context(), "prod", publish.Pruning{Keep: 1})
	require.NoError(t, err)
	require.Len(t, deleted.Deleted, 3+2+2, "ops, versions, signatures")

	v := r.read(p, "prod")
	log, err := p.Log(t.Context(), v)
	require.NoError(t, err)
	require.Len(t, log, 3)
	assert.Equal(t, []string{"anna", "anna", "bert"}, []string{log[0].By, log[1].By, log[2].By})
	assert.Equal(t, noon.Add(-48*time.Hour), log[2].At)
	assert.EqualValues(t, 3, log[2].Version)
	assert.Equal(t, v.SignedBy, log[2].Key)
	assert.Equal(t, "https://ci.example.com/runs/7", log[1].Run)
	for _, n := range []int{1, 2} {
		assert.Equal(t, d, log[n].Changes[0].Release.Digest.String())
	}
	assert.Equal(t, "bsc#1", log[2].Changes[0].Release.Withdrawn.Reason)
}

// A channel thaws by itself at the end of its freeze.
func TestAFreezeEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, later := r.publisher(nil), r.publisher(at(noon.Add(2*time.Hour)))
	r.begin(p, "prod")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	r.does(p, "prod", publish.Freeze(noon.Add(time.Hour)), publish.How{Reason: "holidays"})
	_, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	assert.Equal(t, publish.KindFrozen, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "frozen until 2026-11-22T13:00:00Z")
	_, err = r.add(later, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	r.does(later, "prod", publish.Freeze(noon.Add(3*time.Hour)), publish.How{Reason: "holidays"})
	got, err := r.add(later, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err, "it brings nothing new")
	assert.False(t, got.Changed)
}

// withoutBlob is a registry that has lost a blob.
type withoutBlob struct{ digest string }

func (w withoutBlob) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/blobs/"+w.digest) {
		return http.DefaultTransport.RoundTrip(r)
	}
	rec := httptest.NewRecorder()
	rec.WriteHeader(http.StatusNotFound)
	return rec.Result(), nil
}

func TestVerifyReadsTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.lists(p, "prod", "", "velum:4.0.0-rev1-build1.1")
	v := r.read(p, "prod")
	require.NotEmpty(t, v.Log)
	lost := withoutBlob{v.Log[0].Digest.String()}
	findings, err := r.publisher(func(o *publish.Options) { o.Store.Transport = lost }).Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	require.Len(t, findings, 1)
	assert.Equal(t, "log", findings[0].Object)
}

// A log has few parts, however many ops it has, and each op rewrites few of them.
func TestLogHasFewParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	const ops = 120
	for n := range ops {
		r.does(p, "prod", publish.Refresh(time.Time{}), publish.How{Reason: fmt.Sprintf("number %d of many %x", n, n*n*n*7919)})
	}
	v := r.read(p, "prod")
	assert.LessOrEqual(t, len(v.Log), 6)
	log, err := p.Log(t.Context(), v)
	require.NoError(t, err)
	require.Len(t, log, ops+1)
	for n := range ops {
		assert.Contains(t, log[n+1].Reason, fmt.Sprintf("number %d of", n))
		assert.EqualValues(t, n+2, log[n+1].Version)
	}

	// A change reports what is new in the log, and so does not read the rest of it.
	var paths sync.Map
	reads := transportFunc(func(req *http.Request) (*http.Response, error) {
		paths.Store(req.URL.Path, true)
		return http.DefaultTransport.RoundTrip(req)
	})
	r.does(r.publisher(func(o *publish.Options) { o.Store.Transport = reads }), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{})
	_, isRead := paths.Load("/v2/catalog/blobs/" + v.Log[0].Digest.String())
	assert.False(t, isRead, "the oldest part")
	newest := r.read(p, "prod").Log
	_, isRead = paths.Load("/v2/catalog/blobs/" + newest[len(newest)-1].Digest.String())
	assert.True(t, isRead, "the newest part")
}

// promote --soaked takes the newest release that stage has offered long enough, and a set only as a whole.
func TestSoaked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	day := func(n int) *publish.Publisher { return r.publisher(at(noon.Add(time.Duration(n) * 24 * time.Hour))) }
	r.begin(day(0), "stage", "prod")
	r.lists(day(1), "stage", "", "velum:"+build(0), "velum:"+build(1))
	r.lists(day(1), "stage", "a", "etcd:"+build(0))
	r.lists(day(3), "stage", "", "velum:"+build(2), "pause:"+build(0))
	r.lists(day(3), "stage", "a", "salt:"+build(0))
	soaked := func(n int, s publish.Selection) (selection, error) {
		s.Soaked = 48 * time.Hour
		return selected(t.Context(), day(n), "stage", "prod", s)
	}
	got, err := soaked(4, publish.Selection{All: true})
	require.NoError(t, err)
	require.Len(t, got.Changes, 1)
	assert.Equal(t, r.host+"/velum:"+build(1), got.Changes[0].Member(), "the newest is younger")
	assert.Len(t, got.Skipped, 3, "a new image, and a set with a member that is younger: %v", got.Skipped)
	_, err = soaked(4, publish.Selection{Images: []string{"velum:" + build(2)}})
	assert.Equal(t, publish.KindSoak, kindOf(err), "%v", err)
	_, err = soaked(4, publish.Selection{Set: "a"})
	assert.Equal(t, publish.KindSoak, kindOf(err), "%v", err)
	got, err = soaked(4, publish.Selection{Images: []string{"velum"}})
	require.NoError(t, err)
	assert.Equal(t, build(1), got.Changes[0].Release.Tag)
	got, err = soaked(5, publish.Selection{All: true})
	require.NoError(t, err)
	assert.Len(t, got.Changes, 4)

	// A withdrawal ends it: what is offered again begins anew.
	p := day(6)
	again := catalog.Change{Image: r.host + "/velum", Release: *r.release(p, "stage", "velum:"+build(2))}
	r.gone(p, "stage", "velum:"+build(2))
	r.does(p, "stage", publish.Ask(ops.Want{Do: catalog.ActionPromote, Changes: []catalog.Change{again}, Again: true}), publish.How{})
	got, err = soaked(7, publish.Selection{Images: []string{"velum"}})
	require.NoError(t, err)
	assert.Equal(t, build(1), got.Changes[0].Release.Tag)
}

// A rollout that is paused and made longer keeps the share of its time that has gone.
func TestSteeredRollout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "prod")
	r.push("velum", "one", build(0))
	r.push("etcd", "one", build(0))
	p := r.publisher(nil)
	changes, err := p.Added(t.Context(), []publish.Wanted{r.image("velum:" + build(0)), r.image("etcd:" + build(0))}, amd64)
	require.NoError(t, err)
	for n := range changes {
		changes[n].Release.Set, changes[n].Release.Rollout = "a", &catalog.Rollout{From: noon, Hours: 40}
	}
	r.does(p, "prod", promoted(changes...), publish.How{})
	steer := func(hours int, s publish.Steer) catalog.Rollout {
		t.Helper()
		p := r.publisher(at(noon.Add(time.Duration(hours) * time.Hour)))
		r.does(p, "prod", publish.Roll(publish.Selection{Images: []string{"velum"}}, s), publish.How{})
		v := r.read(p, "prod")
		pages, err := p.Pages(t.Context(), v)
		require.NoError(t, err)
		assert.Equal(t, pages[r.host+"/velum"].Releases[0].Rollout, pages[r.host+"/etcd"].Releases[0].Rollout)
		if o := pages[r.host+"/velum"].Releases[0].Rollout; o != nil {
			return *o
		}
		return catalog.Rollout{}
	}
	paused := steer(10, publish.Steer{Pause: true})
	assert.Equal(t, 25, paused.Share(noon.Add(1000*time.Hour)))
	assert.Greater(t, paused.From.Year(), 8000, "no node's time comes")
	longer := steer(20, publish.Steer{Hours: 80})
	assert.NotNil(t, longer.Paused, "still")
	assert.Equal(t, 25, longer.Share(noon))
	resumed := steer(50, publish.Steer{Resume: true})
	assert.Equal(t, catalog.Rollout{From: noon.Add(30 * time.Hour), Hours: 80}, resumed)
	assert.Equal(t, 50, resumed.Share(noon.Add(70*time.Hour)))
	assert.Equal(t, catalog.Rollout{}, steer(60, publish.Steer{Now: true}))
	_, err = p.Change(t.Context(), "prod", publish.Roll(publish.Selection{Images: []string{"velum"}}, publish.Steer{Pause: true}), publish.How{})
	assert.Equal(t, publish.KindImage, kindOf(err), "%v", err)
}

// reverts has prod reverted, and returns what it says of releases that it does not bring back.
func (r *rig) reverts(p *publish.Publisher, version uint64) (got publish.Result, stays []string) {
	r.t.Helper()
	got, err := p.Change(r.t.Context(), "prod", publish.Revert(version, ""), publish.How{})
	require.NoError(r.t, err)
	for _, o := range got.Outcomes {
		if o.Skipped {
			stays = append(stays, o.Tag+" "+o.Note)
		}
	}
	return got, stays
}

// What came since is withdrawn, with what to run instead. What was withdrawn stays so, and is named. Repeated, it does
// nothing, and goes back no further.
func TestRevert(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.lists(p, "prod", "", "velum:"+build(1), "etcd:"+build(1))
	r.gone(p, "prod", "etcd:"+build(1))
	r.lists(p, "prod", "", "velum:"+build(2))
	r.does(p, "prod", publish.Refresh(time.Time{}), publish.How{})

	got, stays := r.reverts(p, 2)
	assert.EqualValues(t, 6, got.Version, "one version")
	assert.Equal(t, []string{build(1) + " not brought back: withdrawn: bsc#1"}, stays)
	assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
	assert.Equal(t, []string{"-" + build(1)}, r.listed(p, "prod", "etcd"))
	gone := r.release(p, "prod", "velum:"+build(2)).Withdrawn
	assert.Equal(t, build(1), gone.To)
	assert.Equal(t, "reverted to version 2", gone.Reason)
	for _, version := range []uint64{2, 0, 0} {
		got, _ = r.reverts(p, version)
		assert.False(t, got.Changed, "once more")
	}
	assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
	_, err := p.Change(t.Context(), "prod", publish.Revert(99, ""), publish.How{})
	assert.Equal(t, publish.KindImage, kindOf(err), "%v", err)
}

// The two steps of the page "When something is wrong" come before a revert: it undoes the release, and not that step.
func TestRevertAfterThePagesSteps(t *testing.T) {
	t.Parallel()
	for title, step := range map[string]func(r *rig, p *publish.Publisher) error{
		"paused": func(r *rig, p *publish.Publisher) error {
			_, err := p.Change(r.t.Context(), "prod", publish.Roll(publish.Selection{}, publish.Steer{Pause: true}), publish.How{})
			return err
		},
		"withdrawn": func(r *rig, p *publish.Publisher) error {
			return r.withdraw(p, "prod", publish.Withdrawal{Images: []string{"velum:" + build(2)}})
		},
		"frozen": func(r *rig, p *publish.Publisher) error {
			_, err := p.Change(r.t.Context(), "prod", publish.Freeze(noon.Add(time.Hour)), publish.How{})
			return err
		},
		"none of them": func(*rig, *publish.Publisher) error { return nil },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "stage", "prod")
			r.lists(p, "stage", "", "velum:"+build(1))
			_, err := r.promote(p, publish.Selection{All: true}, nil)
			require.NoError(t, err)
			r.lists(p, "stage", "", "velum:"+build(2))
			_, err = r.promote(p, publish.Selection{All: true}, &catalog.Rollout{From: noon, Hours: 48})
			require.NoError(t, err)
			require.NoError(t, step(r, p))
			for range 3 {
				_, _ = r.reverts(p, 0)
				assert.Equal(t, []string{"-" + build(2), build(1)}, r.listed(p, "prod", "velum"))
			}
			v := r.read(p, "prod")
			assert.Equal(t, title == "frozen", !v.Frozen.IsZero())
		})
	}
}

// What newer releases have pushed off its page comes back, and a release whose set changed has the earlier one again; a
// rollout that is paused stays so.
func TestRevertBringsBackWhatFellOffAndEarlierSets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.lists(p, "prod", "a", "velum:"+build(1), "etcd:"+build(1))
	var newer []string
	for n := range catalog.Kept {
		newer = append(newer, "velum:"+build(n+2))
	}
	r.lists(p, "prod", "", newer...)
	r.lists(p, "prod", "b", "etcd:"+build(1), "velum:"+build(2))
	require.Nil(t, r.release(p, "prod", "velum:"+build(1)))
	_, _ = r.reverts(p, 2)
	is := r.release(p, "prod", "velum:"+build(1))
	require.NotNil(t, is)
	assert.Nil(t, is.Withdrawn)
	assert.Equal(t, "a", is.Set)
	is = r.release(p, "prod", "etcd:"+build(1))
	assert.Equal(t, "a", is.Set)
	assert.Equal(t, r.members("etcd:"+build(1), "velum:"+build(1)), is.Members)
	got, _ := r.reverts(p, 2)
	assert.False(t, got.Changed)
}
