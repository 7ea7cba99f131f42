// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetriesAreFurtherApartEachTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var r retry
	assert.False(t, r.isDue(now), "nothing has failed")
	for _, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		r = r.next(now, time.Time{})
		assert.Equal(t, time.Duration(minutes)*time.Minute, r.After.Sub(now))
		assert.False(t, r.isDue(r.After.Add(-1)))
		assert.True(t, r.isDue(r.After))
	}
	assert.True(t, r.isDue(now.AddDate(-1, 0, 0)), "the clock was moved back")
	assert.Equal(t, now.Add(5*time.Hour), r.next(now, now.Add(5*time.Hour)).After, "the server asks for more")
	assert.Equal(t, now.Add(time.Hour), r.next(now, now.Add(time.Minute)).After, "or for less")
	assert.Equal(t, retry{Failures: 1, After: now.Add(maxRetry)}, retry{Failures: -5}.next(now, time.Time{}).at(now.Add(maxRetry)))
}

// at returns the same retry at another time.
func (r retry) at(t time.Time) retry { r.After = t; return r }

var hasFailed = map[string]error{Programs: errRefused}

// A failed run is requested again by the daemon, or by one that started since, and not early.
func TestFailedRunIsRetriedAfterARestart(t *testing.T) {
	t.Parallel()
	state, run := t.TempDir(), t.TempDir()
	d, s := New(state, run, Programs), running("current", "1", "", false)
	require.NoError(t, d.Announce(t.Context(), s))
	deliver(t, d)
	_, err := d.Take()
	require.NoError(t, err)

	require.NoError(t, d.Ended(hasFailed, time.Now()))
	require.NoError(t, New(state, run, Programs).Announce(t.Context(), s))
	assert.False(t, isDue(t, d), "the next minute")
	require.NoError(t, d.Ended(hasFailed, time.Now().Add(-time.Hour)))
	require.NoError(t, New(state, run, Programs).Announce(t.Context(), s))
	assert.True(t, isDue(t, d))

	_, err = d.Take()
	require.NoError(t, err)
	require.NoError(t, d.Ended(map[string]error{Programs: nil}, time.Now()))
	require.NoError(t, d.Ended(map[string]error{Programs: nil}, time.Now()), "no failure to forget")
	require.NoError(t, d.Announce(t.Context(), s))
	assert.False(t, isDue(t, d))
	assert.NoFileExists(t, filepath.Join(state, retryFile))
}

// An unreadable file is ignored, and the next failure replaces it.
func TestABrokenRetryFileIsReplaced(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), t.TempDir(), Programs)
	require.NoError(t, os.WriteFile(filepath.Join(d.stateDir, retryFile), []byte(`{"failures": "many"`), 0o600))
	assert.Empty(t, d.retries().Of)
	require.NoError(t, d.Ended(hasFailed, time.Now()))
	assert.Equal(t, 1, d.retries().Of[Programs].Failures)
}

// Each consumer has its own state: one does not get a change twice because another has failed.
func TestFailedWebhookDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	away.Store(true)
	good, bad := serve(t, accepts), serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	one, other := good.webhook(t), bad.webhook(t)
	one.Name, other.Name = "good", "bad"
	quiet := good.webhook(t)
	quiet.Name, quiet.Events = "quiet", []string{"failed"}
	r := Runner{
		Outbox: New(t.TempDir(), t.TempDir(), "good", "bad", "quiet"), Node: "node-1", Webhooks: []Webhook{one, other, quiet},
		Log: slog.New(slog.DiscardHandler),
	}
	require.NoError(t, r.Outbox.Announce(t.Context(), running("current", "1", "", false)))
	require.True(t, isDue(t, r.Outbox))
	require.ErrorContains(t, r.Run(t.Context()), "webhook bad: ")
	assert.Len(t, good.requests(), 1)
	assert.Equal(t, 1, r.Outbox.retries().Of["bad"].Failures)

	asked := len(bad.requests())
	require.ErrorContains(t, r.Run(t.Context()), "webhook bad: failed before, next attempt after ")
	assert.Len(t, bad.requests(), asked, "it is left alone")
	r.ByHand = true
	require.ErrorContains(t, r.Run(t.Context()), "webhook bad: ")
	assert.Len(t, good.requests(), 1, "it has it already")
	assert.Equal(t, 2, r.Outbox.retries().Of["bad"].Failures)

	away.Store(false)
	before := len(bad.requests())
	require.NoError(t, r.Outbox.Announce(t.Context(), running("staged", "1", "2", true)))
	require.NoError(t, r.Run(t.Context()))
	assert.Len(t, good.requests(), 2)
	require.Len(t, bad.requests(), before+1, "both changes in one")
	assert.Contains(t, bad.requests()[before].body, `"was":""`)
	assert.Contains(t, good.requests()[1].body, `"was":"current"`)
	assert.NoFileExists(t, filepath.Join(r.Outbox.stateDir, retryFile))
	require.NoError(t, r.Run(t.Context()))
	assert.Len(t, bad.requests(), before+1, "nothing new")
}

// Sixty changes in a minute are one request to a server that asks to wait, and later one more.
func TestAWebhookThatAsksToWaitIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code  int
		after string
		wait  time.Duration
	}{
		"too many":      {429, "3600", time.Hour},
		"overloaded":    {503, "7200", 2 * time.Hour},
		"a day at most": {503, "999999999", maxAsked},
		"a short wait":  {503, "20", firstRetry}, // longer than the pauses of a run, shorter than the next one
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			away.Store(true)
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if away.Load() {
					w.Header().Set("Retry-After", c.after)
					w.WriteHeader(c.code)
				}
			})
			r := Runner{
				Outbox: New(t.TempDir(), t.TempDir(), "chat"), Webhooks: []Webhook{s.webhook(t)}, Log: slog.New(slog.DiscardHandler),
			}
			before := time.Now()
			for n := range 9 { // within a minute
				require.NoError(t, r.Outbox.Announce(t.Context(), running("staged", "1", strconv.Itoa(n+2), true)))
				require.Error(t, r.Run(t.Context()))
			}
			assert.Len(t, s.requests(), 1)
			assert.WithinDuration(t, before.Add(c.wait), r.Outbox.retries().Of["chat"].After, time.Minute)
			later, err := json.Marshal(retries{map[string]retry{"chat": {Failures: 1, After: before.Add(-time.Second)}}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(r.Outbox.stateDir, retryFile), later, 0o600))
			away.Store(false)
			require.NoError(t, r.Run(t.Context()))
			require.Len(t, s.requests(), 2)
			assert.Contains(t, s.requests()[1].body, `"to":"10"`)
			require.NoError(t, r.Run(t.Context()))
			assert.Len(t, s.requests(), 2)
		})
	}
}

// A wait that fits between two attempts is kept in the same run.
func TestAShortWaitIsKeptInTheRun(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	h := s.webhook(t)
	h.Pauses = []time.Duration{0, time.Minute}
	before := time.Now()
	require.NoError(t, h.Send(t.Context(), velumIsStaged()))
	assert.GreaterOrEqual(t, time.Since(before), time.Second)
	assert.Len(t, s.requests(), 2)
}
