// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	built := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	now := built.Add(30 * 24 * time.Hour)
	clocks := func(ahead ...time.Duration) *dates {
		d := new(dates)
		for i, a := range ahead {
			d.note(string(rune('a'+i)), http.Header{"Date": {now.Add(a).Format(http.TimeFormat)}}, now)
		}
		return d
	}
	found(t, clocks().check(now, built), OK, "2026-12-31T00:00:00Z")
	found(t, clocks().check(built.Add(-time.Hour), built), OK)
	found(t, clocks().check(built.Add(-48*time.Hour), built), Fail, "before this program was built (2026-12-01T00:00:00Z)", "timedatectl")
	found(t, clocks(drift).check(now, built), OK)
	found(t, clocks(-drift).check(now, built), OK)
	found(t, clocks(2*time.Minute).check(now, built), Warn, "2m0s behind the clock of a", "timedatectl")
	found(t, clocks(-time.Hour, 2*time.Hour).check(now, built), Warn, "1h0m0s ahead of the clock of a")
	found(t, clocks(2*time.Minute, -time.Hour).check(now, built), Warn, "2m0s behind the clock of a")
	found(t, clocks(time.Hour, 0).check(now, built), OK)

	cached := new(dates)
	cached.note("a", http.Header{"Date": {now.Add(-time.Hour).Format(http.TimeFormat)}, "Age": {"3600"}}, now)
	found(t, cached.check(now, built), OK)
	silent := new(dates)
	silent.note("a", http.Header{"Date": {"yesterday"}}, now)
	assert.Empty(t, silent.ahead)
}

func TestDatesAreTakenFromTheWire(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	d := new(dates)
	client := http.Client{Transport: d.wrap(http.DefaultTransport)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	found(t, d.check(time.Now(), born), Warn, "ahead of the clock of "+server.Listener.Addr().String())
	server.Close()
	_, err = client.Do(req) //nolint:bodyclose // there is none
	require.Error(t, err)
}

func TestTheBuildIsNotBeforeTheFirstVersion(t *testing.T) {
	t.Parallel()
	assert.False(t, builtAt().Before(born))
}
