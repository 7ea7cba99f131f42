// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// random returns the same generator at each run, unless IUA_SEED is set.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, _ := strconv.ParseUint(os.Getenv("IUA_SEED"), 10, 64)
	t.Logf("IUA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// analyze runs systemd-analyze on texts and returns its line for each that a pattern matches; empty if it rejects the
// text. It stops at the first rejected text.
func analyze(t *testing.T, line *regexp.Regexp, texts []string, args ...string) (says []string) {
	t.Helper()
	for len(says) < len(texts) {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append(append(args, "--"), texts[len(says):]...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
		out, err := cmd.Output()
		for _, m := range line.FindAllStringSubmatch(string(out), -1) {
			says = append(says, m[1])
		}
		if err == nil {
			break
		}
		says = append(says, "")
	}
	require.Len(t, says, len(texts))
	return says
}

var nextElapse = regexp.MustCompile(`(?m)^    Next elapse: \w+ (.*) UTC$`)

// A window begins when a systemd timer with its days, time and zone elapses, also around clock changes. They differ on
// purpose if the clock skips that time: the window begins after the gap, and the timer waits for the next day.
func TestWindowsMatchSystemdTimers(t *testing.T) {
	t.Parallel()
	r := random(t)
	compared, skipped := 0, 0
	for range 60 {
		zone, err := LoadZone(zones[r.IntN(len(zones))])
		require.NoError(t, err)
		now := time.Date(2009, 1, 1+r.IntN(30*365), r.IntN(24), r.IntN(60), 0, 0, time.UTC)
		if _, change := now.In(zone).ZoneBounds(); !change.IsZero() && r.IntN(3) > 0 {
			now = change.UTC().Add(time.Duration(r.IntN(4*24*60)-3*24*60) * time.Minute)
		}
		var windows []Window
		var texts []string
		for range 20 {
			from, to := time.Weekday(r.IntN(7)), time.Weekday(r.IntN(7))
			start := fmt.Sprintf("%02d:%02d", r.IntN(1+r.IntN(24)), r.IntN(60))
			days, err := ParseDays(from.String() + "-" + to.String()[:3])
			require.NoError(t, err)
			var names []string
			for _, day := range days {
				names = append(names, day.String()[:3])
			}
			w := Window{Days: days, Zone: zone, Length: time.Minute}
			w.Start, err = ParseStart(start)
			require.NoError(t, err)
			windows, texts = append(windows, w), append(texts, strings.Join(names, ",")+" "+start+" "+zone.String())
		}
		for i, next := range analyze(t, nextElapse, texts, "calendar", "--base-time="+now.Format("2006-01-02 15:04:05 UTC")) {
			want, err := time.Parse("2006-01-02 15:04:05", next)
			require.NoError(t, err, "%s: %s", texts[i], next)
			got := Schedule{windows[i]}.next(now)
			if shown := got.In(zone); shown.Hour()*60+shown.Minute() != int(windows[i].Start.Minutes()) {
				skipped++
				continue
			}
			compared++
			assert.Equal(t, want.Format(time.RFC3339), got.UTC().Format(time.RFC3339), "%s after %s", texts[i], now)
		}
	}
	t.Logf("%d compared, %d in a gap", compared, skipped)
	assert.Greater(t, compared, 1000)
}

var microseconds = regexp.MustCompile(`(?m)^ +μs: (\d+)$`)

// A length that systemd also accepts has the same duration.
func TestLengthsMatchSystemdTimeSpans(t *testing.T) {
	t.Parallel()
	r := random(t)
	compared := 0
	numbers := []string{"1", "30", "4", "0", "007", "1.5", ".5", "90", "0.25", "1.000001", "12", "3"}
	units := []string{"h", "h", "m", "m", "s", "s", "ms", "us", "d", "w", "min", "hr", " h", "h ", "", "M"}
	for range 30 {
		var texts []string
		for range 60 {
			text := ""
			for range 1 + r.IntN(3) {
				text += numbers[r.IntN(len(numbers))] + units[r.IntN(6+r.IntN(len(units)-5))]
			}
			texts = append(texts, text)
		}
		for i, us := range analyze(t, microseconds, texts, "timespan") {
			got, err := ParseLength(texts[i])
			want, number := strconv.ParseInt(us, 10, 64)
			if err != nil || us == "" {
				continue // a text that one of them rejects cannot be misread
			}
			require.NoError(t, number)
			compared++
			assert.InDelta(t, want, got.Microseconds(), 1000, texts[i]) // systemd rounds each part of a fraction
		}
	}
	t.Logf("%d compared", compared)
	assert.Greater(t, compared, 500)
}
