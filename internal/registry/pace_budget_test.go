// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func budgetOf(perHour int) func(*Options) { return func(o *Options) { o.RequestsPerHour = perHour } }

func TestBudgetRefusesQuestions(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.tag("1", f.image(t, "linux", "amd64", nil))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option, budgetOf(60))
	start := c.now()
	assert.Zero(t, r.Pace().Budget, "full")
	for i := range 60 {
		require.NoError(t, f.poll(t, r), i)
	}
	assert.Equal(t, record.Budget{PerHour: 60, Remaining: 0, At: start}, r.Pace().Budget)
	source := sourceError(t, f.poll(t, r))
	assert.Equal(t, &release.SourceError{
		Repository: f.repository(), RetryAt: start.Add(time.Minute), Unasked: true,
		Cause: release.CauseUnasked, Err: source.Err,
	}, source)
	assert.EqualError(t, source, f.repository()+": budget of 60 requests an hour is used up until 2026-11-21T12:01:00Z")

	c.advance(time.Minute - time.Second)
	assert.True(t, sourceError(t, f.poll(t, r)).Unasked)
	assert.Equal(t, start.Add(time.Minute), sourceError(t, f.poll(t, r)).RetryAt)
	c.advance(time.Second)
	require.NoError(t, f.poll(t, r))
	assert.True(t, sourceError(t, f.poll(t, r)).Unasked)
	c.advance(30 * time.Minute)
	assert.Equal(t, record.Budget{PerHour: 60, Remaining: 30, At: c.now()}, r.Pace().Budget, "refilled evenly")
	c.advance(30*time.Minute - time.Second)
	assert.NotZero(t, r.Pace().Budget)
	c.advance(time.Second)
	assert.Zero(t, r.Pace().Budget)
	assert.Len(t, f.log(), 61)
}

// No other host is tried, and the first one's answer is not lost.
func TestBudgetEndsTheRoundOfHosts(t *testing.T) {
	t.Parallel()
	mirror, upstream := newFake(t), newFake(t)
	toml := plainHTTP(upstream.host()) + fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())
	r, _ := newRegistry(t, certsD(t, upstream.host(), toml), newClock().option, budgetOf(1))
	assert.EqualError(t, upstream.poll(t, r), fmt.Sprintf(
		"%s: budget of 1 requests an hour is used up until 2026-11-21T13:00:00Z (mirror %s: 404: not found)",
		upstream.repository(), mirror.host()))
	source := sourceError(t, upstream.poll(t, r))
	assert.EqualError(t, source, upstream.repository()+": budget of 1 requests an hour is used up until 2026-11-21T13:00:00Z")
	assert.NotErrorIs(t, source, release.ErrNotFound)
}

// A question that has begun is completed, because otherwise its requests would be wasted. All its requests count.
func TestBudgetCountsAllAndRefusesOnlyTheFirst(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.tag("1", f.image(t, "linux", "amd64", nil))
	newTokenServer(t, f)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option, budgetOf(10))
	require.NoError(t, f.poll(t, r))
	assert.Equal(t, 7, r.Pace().Budget.Remaining, "asked, token, asked again")
	assert.Equal(t, uint64(3), r.Counts().Requests)

	r, _ = newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option, budgetOf(1))
	require.NoError(t, f.poll(t, r), "with one request left")
	assert.Zero(t, r.Pace().Budget.Remaining, "never less than nothing")
	assert.True(t, sourceError(t, f.poll(t, r)).Unasked)
}

// A pull uses the budget and never waits for it.
func TestBudgetNeverRefusesAPull(t *testing.T) {
	t.Parallel()
	const layer = "layer"
	f, c := newFake(t), newClock()
	desc := f.image(t, "linux", "amd64", nil)
	f.tag("1", desc)
	f.set("application/octet-stream", []byte(layer))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option, budgetOf(3))
	for range 3 {
		_, err := r.Locate(t.Context(), f.repository(), desc.Digest)
		require.NoError(t, err)
		require.NoError(t, fetch(t, r, f.repository(), layer))
	}
	assert.Equal(t, Counts{Requests: 6, Pulls: 6}, requestsOf(r.Counts()))
	assert.Zero(t, r.Pace().Budget.Remaining)
	source := sourceError(t, f.poll(t, r))
	assert.True(t, source.Unasked)
	assert.Equal(t, c.now().Add(20*time.Minute), source.RetryAt)
}

// A request refused for a host's back-off costs nothing.
func TestBudgetIsNotSpentOnUnsentRequests(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.answer(busy(http.StatusTooManyRequests, "60"))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option, budgetOf(100))
	for range 10 {
		require.Error(t, f.poll(t, r))
	}
	assert.Equal(t, 99, r.Pace().Budget.Remaining)
}

func TestBudgetSurvivesARestart(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.tag("1", f.image(t, "linux", "amd64", nil))
	dir := certsD(t, f.host(), plainHTTP(f.host()))
	r, _ := newRegistry(t, dir, c.option, budgetOf(60))
	for range 60 {
		require.NoError(t, f.poll(t, r))
	}
	for restarts := range 100 { // each a tenth of a request later
		c.advance(6 * time.Second)
		again, _ := newRegistry(t, dir, c.option, budgetOf(60))
		restart(t, r, again)
		r = again
		assert.Equal(t, (restarts+1)/10, again.Pace().Budget.Remaining)
	}
	for range 10 {
		require.NoError(t, f.poll(t, r))
	}
	assert.True(t, sourceError(t, f.poll(t, r)).Unasked)
}

func TestSavedBudget(t *testing.T) {
	t.Parallel()
	c := newClock()
	for title, kept := range map[string]struct {
		budget record.Budget
		want   record.Budget
	}{
		"none":            {record.Budget{}, record.Budget{}},
		"just now":        {record.Budget{PerHour: 60, Remaining: 7, At: c.now()}, record.Budget{PerHour: 60, Remaining: 7, At: c.now()}},
		"half an hour":    {record.Budget{PerHour: 60, Remaining: 7, At: c.now().Add(-30 * time.Minute)}, record.Budget{PerHour: 60, Remaining: 37, At: c.now()}},
		"a day":           {record.Budget{PerHour: 60, At: c.now().Add(-24 * time.Hour)}, record.Budget{}},
		"the clock was":   {record.Budget{PerHour: 60, Remaining: 7, At: c.now().Add(time.Hour)}, record.Budget{PerHour: 60, Remaining: 7, At: c.now()}},
		"it was less":     {record.Budget{PerHour: 10, Remaining: 7, At: c.now()}, record.Budget{PerHour: 60, Remaining: 7, At: c.now()}},
		"it was more":     {record.Budget{PerHour: 600, Remaining: 70, At: c.now()}, record.Budget{}},
		"less than none":  {record.Budget{PerHour: 60, Remaining: -7, At: c.now()}, record.Budget{PerHour: 60, At: c.now()}},
		"without a limit": {record.Budget{PerHour: 0, Remaining: 7, At: c.now()}, record.Budget{}},
	} {
		r, _ := newRegistry(t, t.TempDir(), c.option, budgetOf(60))
		r.Resume(record.Pace{Budget: kept.budget})
		assert.Equal(t, kept.want, r.Pace().Budget, title)
		r.Resume(record.Pace{Budget: record.Budget{PerHour: 60, Remaining: 59, At: c.now()}})
		assert.LessOrEqual(t, r.Pace().Budget.Remaining, 59, "%s: the lesser counts", title)
	}
	r, _ := newRegistry(t, t.TempDir(), c.option)
	r.Resume(record.Pace{Budget: record.Budget{PerHour: 60, At: c.now()}})
	assert.Zero(t, r.Pace().Budget, "there is none any more")
}
