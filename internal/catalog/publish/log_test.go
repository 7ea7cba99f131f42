// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
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
	v, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
	gone, err := withdrawn(t.Context(), p, v, publish.Withdrawal{Images: []string{"velum:4.0.0-rev1-build1.1"}, Reason: "bsc#1"})
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionWithdraw, Changes: gone, Reason: "bsc#1"})
	require.NoError(t, err)
	p = as("cron", noon)
	deleted, err := p.Prune(t.Context(), "prod", publish.Pruning{Keep: 1})
	require.NoError(t, err)
	require.Len(t, deleted.Deleted, 3+2+2, "ops, versions, signatures")

	v, err = p.Read(t.Context(), "prod")
	require.NoError(t, err)
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
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	_, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	v, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
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
		_, err := change(t.Context(), p, request{
			Channel: "prod", Do: catalog.ActionRefresh, Reason: fmt.Sprintf("number %d of many %x", n, n*n*n*7919),
		})
		require.NoError(t, err)
	}
	v, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(v.Log), 6)
	log, err := p.Log(t.Context(), v)
	require.NoError(t, err)
	require.Len(t, log, ops+1)
	for n := range ops {
		assert.Contains(t, log[n+1].Reason, fmt.Sprintf("number %d of", n))
		assert.EqualValues(t, n+2, log[n+1].Version)
	}
}

// A frozen channel takes no release, but withdrawals, and thaws by itself.
func TestFreeze(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	r.push("velum", "two", "4.0.0-rev1-build1.2")
	_, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionFreeze, Until: noon.Add(time.Hour), Reason: "holidays"})
	require.NoError(t, err)
	_, err = r.add(p, "prod", "velum:4.0.0-rev1-build1.2")
	assert.Equal(t, publish.KindFrozen, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "frozen until 2026-11-22T13:00:00Z")
	v, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
	gone, err := withdrawn(t.Context(), p, v, publish.Withdrawal{Images: []string{"velum:4.0.0-rev1-build1.1"}, Reason: "bsc#1"})
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionWithdraw, Changes: gone})
	require.NoError(t, err, "a withdrawal does not wait for the end of the holidays")
	_, err = r.add(r.publisher(at(noon.Add(2*time.Hour))), "prod", "velum:4.0.0-rev1-build1.2")
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionFreeze})
	require.NoError(t, err)
	v, err = p.Read(t.Context(), "prod")
	require.NoError(t, err)
	assert.Zero(t, v.Frozen)
	was := v.Version
	got, err := change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionFreeze})
	require.NoError(t, err)
	assert.False(t, got.Changed, "it is not frozen")
	assert.Equal(t, was, got.Version)
}

// promote --soaked takes the newest release that stage has offered long enough, and a set only as a whole.
func TestSoaked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	day := func(n int) *publish.Publisher { return r.publisher(at(noon.Add(time.Duration(n) * 24 * time.Hour))) }
	r.begin(day(0), "stage", "prod")
	add := func(n int, set string, images ...string) {
		t.Helper()
		var wanted []publish.Wanted
		for _, i := range images {
			w := r.image(i)
			w.Set = set
			wanted = append(wanted, w)
		}
		changes, err := day(n).Added(t.Context(), wanted, amd64)
		require.NoError(t, err)
		_, err = change(t.Context(), day(n), request{Channel: "stage", Do: catalog.ActionAdd, Changes: changes})
		require.NoError(t, err)
	}
	for image, tags := range map[string]int{"velum": 3, "etcd": 1, "salt": 1, "pause": 1} {
		for n := range tags {
			r.push(image, fmt.Sprint(image, n), build(n))
		}
	}
	add(1, "", "velum:"+build(0), "velum:"+build(1))
	add(1, "a", "etcd:"+build(0))
	add(3, "", "velum:"+build(2), "pause:"+build(0))
	add(3, "a", "salt:"+build(0))
	soaked := func(n int, s publish.Selection) (selection, error) {
		t.Helper()
		p := day(n)
		stage, err := p.Read(t.Context(), "stage")
		require.NoError(t, err)
		prod, err := p.Read(t.Context(), "prod")
		require.NoError(t, err)
		s.Soaked = 48 * time.Hour
		return selected(t.Context(), p, stage, prod, s)
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
	v, err := p.Read(t.Context(), "stage")
	require.NoError(t, err)
	gone, err := withdrawn(t.Context(), p, v, publish.Withdrawal{Images: []string{"velum:" + build(2)}, Reason: "bsc#1"})
	require.NoError(t, err)
	_, err = change(t.Context(), p, request{Channel: "stage", Do: catalog.ActionWithdraw, Changes: gone})
	require.NoError(t, err)
	again := gone[0]
	again.Release.Withdrawn = nil
	_, err = change(t.Context(), p, request{
		Channel: "stage", Do: catalog.ActionPromote, Changes: []catalog.Change{again}, Withdrawn: true,
	})
	require.NoError(t, err)
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
	_, err = change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionPromote, Changes: changes})
	require.NoError(t, err)
	steer := func(hours int, s publish.Steer) catalog.Rollout {
		t.Helper()
		p := r.publisher(at(noon.Add(time.Duration(hours) * time.Hour)))
		_, err := p.Change(t.Context(), "prod", publish.Roll(publish.Selection{Images: []string{"velum"}}, s), publish.How{})
		require.NoError(t, err)
		v, err := p.Read(t.Context(), "prod")
		require.NoError(t, err)
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
