// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLaterWaitOfAHostCounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := newPace(func() time.Time { return now }, 0)
	for _, wait := range []struct {
		seconds string
		want    time.Duration
	}{{"60", time.Minute}, {"30", time.Minute}, {"120", 2 * time.Minute}} {
		h := p.answered(route{host: "host"}, &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {wait.seconds}}})
		assert.NotNil(t, h)
		assert.Equal(t, now.Add(wait.want), p.Pace().Waits["host"].Until)
	}
	assert.Nil(t, p.answered(route{host: "host"}, &http.Response{StatusCode: http.StatusOK}))
	assert.NotNil(t, p.blocked(route{host: "host"}), "the answer to an earlier request takes no wait back")
}

func TestHostHasOneName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://registry.suse.com/v2/":     "registry.suse.com",
		"https://Registry.SUSE.com:443/v2/": "registry.suse.com",
		"http://mirror:80/":                 "mirror",
		"http://mirror:443/":                "mirror:443",
		"https://mirror:5000/?ns=x":         "mirror:5000",
		"https://mirror:/":                  "mirror",
		"https://[2001:DB8::1]/":            "[2001:db8::1]",
		"https://[2001:db8::1]:443/":        "[2001:db8::1]",
		"https://[2001:db8::1]:5000/":       "[2001:db8::1]:5000",
		"https://user:secret@mirror/":       "mirror",
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		assert.Equal(t, want, hostKey(u), text)
	}
}

// For any sequence of questions, pulls and restarts: no hour has more questions than twice the budget (the saved part
// and the refill), and a refused question is sent at the announced time.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		perHour := rapid.IntRange(1, 100).Draw(t, "per hour")
		at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		now := func() time.Time { return at }
		p := newPace(now, perHour)
		var sent []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				at = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "later")))
			case 1:
				kept := p.Pace()
				p = newPace(now, perHour)
				p.Resume(kept)
			case 2:
				if h := p.admit(t.Context(), route{host: "host"}); h != nil {
					t.Fatal("a pull was refused")
				}
			default:
				h := p.admit(forQuestion(t.Context()), route{host: "host"})
				if h == nil {
					sent = append(sent, at)
					continue
				}
				at = h.Until
				if p.admit(forQuestion(t.Context()), route{host: "host"}) != nil {
					t.Fatal("refused when it was said to be possible")
				}
				sent = append(sent, at)
			}
		}
		for i, from := range sent {
			within := 0
			for _, at := range sent[i:] {
				if at.Sub(from) < time.Hour {
					within++
				}
			}
			if within > 2*perHour {
				t.Fatalf("%d questions in an hour", within)
			}
		}
	})
}

// A host may block the agent for a day at most, and never sets a time in the past.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "0", "86400", "86401", "-1", "1e3", " 5 ", "99999999999999999999", "Sun, 01 Mar 2026 12:30:00 GMT",
		"Sunday, 01-Mar-26 12:30:00 GMT", "Sun Mar  1 12:30:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 01 Mar 2026 12:30:00 +0200",
	} {
		f.Add(seed, int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%(1<<33), 0).UTC()
		at := retryAt(http.Header{"Retry-After": {value}}, now)
		if at.IsZero() {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && n < 1e9 {
				assert.Fail(t, "a number of seconds was not read", n)
			}
			return
		}
		assert.False(t, at.Before(now), "%s before %s", at, now)
		assert.False(t, at.After(now.Add(maxRetryAfter)))
		assert.Equal(t, time.UTC, at.Location())
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= uint64(maxRetryAfter/time.Second) {
			assert.Equal(t, now.Add(time.Duration(n)*time.Second), at)
		}
		if date, err := http.ParseTime(strings.TrimSpace(value)); err == nil && date.Before(now.Add(maxRetryAfter)) {
			assert.True(t, date.Equal(at))
		}
	})
}
