// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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
		r = r.next(now)
		assert.Equal(t, time.Duration(minutes)*time.Minute, r.After.Sub(now))
		assert.False(t, r.isDue(r.After.Add(-1)))
		assert.True(t, r.isDue(r.After))
	}
	assert.True(t, r.isDue(now.AddDate(-1, 0, 0)), "the clock was moved back")
	assert.Equal(t, retry{Failures: 1, After: now.Add(maxRetry)}, retry{Failures: -5}.next(now).at(now.Add(maxRetry)))
}

// at returns the same retry at another time.
func (r retry) at(t time.Time) retry { r.After = t; return r }

// A failed run is requested again by the daemon, or by one that started since, and not early.
func TestFailedRunIsRetriedAfterARestart(t *testing.T) {
	t.Parallel()
	state, run := t.TempDir(), t.TempDir()
	d, s := New(state, run, Programs), running("current", "1", "", false)
	require.NoError(t, d.Announce(t.Context(), s))
	_, delivered, err := d.Change(Programs)
	require.NoError(t, err)
	require.NoError(t, delivered())
	require.NoError(t, d.Take())

	require.NoError(t, d.Ended(true, time.Now()))
	require.NoError(t, New(state, run, Programs).Announce(t.Context(), s))
	assert.False(t, isDue(t, d), "the next minute")
	require.NoError(t, d.Ended(true, time.Now().Add(-time.Hour)))
	require.NoError(t, New(state, run, Programs).Announce(t.Context(), s))
	assert.True(t, isDue(t, d))

	require.NoError(t, d.Take())
	require.NoError(t, d.Ended(false, time.Now()))
	require.NoError(t, d.Ended(false, time.Now()), "no failure to forget")
	require.NoError(t, d.Announce(t.Context(), s))
	assert.False(t, isDue(t, d))
	assert.NoFileExists(t, filepath.Join(state, retryFile))
}

// An unreadable file is ignored, and the next failure replaces it.
func TestABrokenRetryFileIsReplaced(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), t.TempDir(), Programs)
	require.NoError(t, os.WriteFile(filepath.Join(d.stateDir, retryFile), []byte(`{"failures": "many"`), 0o600))
	assert.Zero(t, d.retry())
	require.NoError(t, d.Ended(true, time.Now()))
	assert.Equal(t, 1, d.retry().Failures)
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
	assert.Equal(t, 1, r.Outbox.retry().Failures)

	require.ErrorContains(t, r.Run(t.Context()), "webhook bad: ")
	assert.Len(t, good.requests(), 1, "it has it already")
	assert.Equal(t, 2, r.Outbox.retry().Failures)

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
