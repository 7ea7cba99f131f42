// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// value returns the number of a series in the output.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, namespace+series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func served(t *testing.T, c *Counts) string {
	t.Helper()
	return scrape(t, Handler(readings(func(*status.Status, *record.Pace) {}), c))
}

// Counters start at zero, not absent: Prometheus does not detect the increase of a counter whose first value is one.
func TestCountsBeginAtZero(t *testing.T) {
	t.Parallel()
	text := served(t, NewCounts())
	for _, series := range []string{
		"loop_turns_total", `applies_total{result="applied"}`, `applies_total{result="held"}`, `applies_total{result="failed"}`,
		`rollbacks_total{by="itself",result="rolled back"}`, `rollbacks_total{by="person",result="failed"}`,
		`stages_total{result="staged"}`, "apply_duration_seconds_count",
		`pod_restart_seconds_count{of="apply"}`, `pod_restart_seconds_count{of="rollback"}`,
		`offers{change="rebuild"}`, `offers{change="remove"}`, `holds{hold="disk"}`,
	} {
		assert.Equal(t, "0", value(t, text, series), series)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	c := NewCounts()
	for range 3 {
		c.CycleDone()
	}
	c.Failed("m1:5000", release.CauseTimeout)
	c.Failed("m1:5000", release.CauseTimeout)
	c.Failed("m1:5000", release.CauseTLS)
	c.Failed("", release.CauseUnasked)
	c.Staged(nil)
	c.Staged(fmt.Errorf("%w: no room", release.ErrHeld))
	c.Staged(errors.New("reset by peer"))
	c.Restarted(apply.Measured{Result: status.ResultApplied, Took: 31 * time.Second, Up: time.Second})
	c.Restarted(apply.Measured{Result: status.ResultFailed, Took: 330 * time.Second})
	c.Restarted(apply.Measured{Result: status.ResultHeld, Took: time.Second})
	c.Restarted(apply.Measured{Back: true, Result: status.ResultRolledBack, Took: 32 * time.Second, Up: 2100 * time.Millisecond})
	c.Restarted(apply.Measured{Back: true, ByHand: true, Result: status.ResultFailed, Took: 32 * time.Second})
	text := served(t, c)
	for series, want := range map[string]string{
		"loop_turns_total": "3",
		`poll_failures_total{cause="timeout",host="m1:5000"}`: "2",
		`poll_failures_total{cause="tls",host="m1:5000"}`:     "1",
		`poll_failures_total{cause="unasked",host="none"}`:    "1",
		`stages_total{result="staged"}`:                       "1",
		`stages_total{result="held"}`:                         "1",
		`stages_total{result="failed"}`:                       "1",
		`applies_total{result="applied"}`:                     "1",
		`applies_total{result="held"}`:                        "1",
		`applies_total{result="failed"}`:                      "1",
		`rollbacks_total{by="itself",result="rolled back"}`:   "1",
		`rollbacks_total{by="person",result="failed"}`:        "1",
		`rollbacks_total{by="person",result="rolled back"}`:   "0",
		"apply_duration_seconds_count":                        "2", // a held apply has not begun
		"apply_duration_seconds_sum":                          "361",
		`apply_duration_seconds_bucket{le="32.5"}`:            "1",
		`pod_restart_seconds_count{of="apply"}`:               "1", // the other pod did not come up
		`pod_restart_seconds_bucket{of="rollback",le="2"}`:    "0",
		`pod_restart_seconds_bucket{of="rollback",le="2.5"}`:  "1",
	} {
		assert.Equal(t, want, value(t, text, series), series)
	}
}

// A name server or a mirror that invents hosts must not fill Prometheus.
func TestHostsOfFailuresAreBounded(t *testing.T) {
	t.Parallel()
	c := NewCounts()
	var all sync.WaitGroup
	for i := range maxSeries + 10 {
		all.Go(func() { c.Failed(fmt.Sprintf("h%04d:5000", i), release.CauseRefused) })
	}
	all.Wait()
	text := served(t, c)
	assert.Equal(t, maxSeries+1, strings.Count(text, "\n"+namespace+"poll_failures_total{"))
	assert.Equal(t, "10", value(t, text, `poll_failures_total{cause="refused",host="other"}`))

	c = NewCounts()
	c.Failed("a\"\n} 1\nevil 1", release.CauseOther)
	c.Failed("\xff"+strings.Repeat("x", 10*maxLabel), release.CauseOther)
	text = served(t, c)
	assert.NotContains(t, text, "\nevil")
	for line := range strings.Lines(text) {
		assert.Less(t, len(line), 2*maxLabel)
	}
}

// The age of a fleet's data is that of the repository that has not answered for longest.
func TestOldestAnswerCounts(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		ages []time.Duration // -1: it has never answered
		want string
	}{
		"all":            {[]time.Duration{time.Minute, time.Hour, time.Second}, "3600"},
		"never answered": {[]time.Duration{time.Minute, -1}, ""},
		"none is asked":  {nil, ""},
		"the clock":      {[]time.Duration{-time.Hour}, "0"},
	} {
		r := readings(func(s *status.Status, _ *record.Pace) {
			for i, age := range c.ages {
				source := status.SourceStatus{Repository: fmt.Sprintf("r/%d", i)}
				if at := noon.Add(-age); age != -1 {
					source.LastSuccess = &at
				}
				s.Sources = append(s.Sources, source)
			}
		})
		assert.Equal(t, c.want, value(t, scrape(t, Handler(r, NewCounts())), "last_success_age_seconds"), title)
	}
	require.NotEmpty(t, changes())
}
