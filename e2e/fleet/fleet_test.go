// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each node of a rollout is staged, then runs the release or has failed.
func TestWhereTheNodesStand(t *testing.T) {
	t.Parallel()
	w := Waves()[0]
	begun := w.Begin()
	assert.Equal(t, Standing{Run: 9_998, Failed: 2}, w.Standing(begun, 84*time.Hour, failedNodes()...))
	assert.Len(t, begun, w.Nodes)
	half := w.Standing(begun, 36*time.Hour, failedNodes()...)
	assert.Equal(t, w.Nodes, half.Staged+half.Run+half.Failed, "all have polled")
	assert.Zero(t, w.Standing(begun, -1))
}

// TestPeaks checks the goals: the simulation is deterministic.
func TestPeaks(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios() {
		goal := 1.5
		if s.Away.To > 0 {
			goal = 3
		}
		r := Judge(10_000, Slots, s)
		assert.LessOrEqual(t, r.Ratio, goal, s.Name)
		assert.Greater(t, r.Ratio, 1.0, s.Name)
	}
}

// TestPeakOfAnyOutage: no length of an outage causes more than three times the mean.
func TestPeakOfAnyOutage(t *testing.T) {
	t.Parallel()
	const from, day = 24 * time.Hour, 24 * time.Hour
	for _, minutes := range []int{10, 30, 60, 120, 240, 360, 540, 720, 1080, 1440, 2880} {
		for _, dated := range []bool{false, true} {
			to := from + time.Duration(minutes)*time.Minute
			s := Scenario{Away: Span{from, to}, Dated: dated, Shown: Span{from, to}, Judged: Span{to, to + day}}
			assert.LessOrEqual(t, Judge(10_000, Slots, s).Ratio, 3.0, "%d minutes, dated: %v", minutes, dated)
		}
	}
}

func TestEveryNodePollsOnceInAnInterval(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios() {
		s.Shown, s.Judged = Span{To: 6 * 24 * time.Hour}, Span{}
		polls := Simulate(50, Slots, s)
		assert.IsIncreasing(t, times(polls), "in their order")
		span := Span{4*24*time.Hour + 12*time.Hour, 6 * 24 * time.Hour} // after any disturbance
		count := 0
		for _, p := range polls {
			assert.Equal(t, !s.Away.has(p.At), p.Answered)
			assert.False(t, s.Cut.has(p.At), "polled without power")
			if span.has(p.At) {
				count++
			}
		}
		assert.Equal(t, 50*3, count, s.Name)
	}
}

func times(polls []Poll) (at []float64) {
	for _, p := range polls {
		at = append(at, p.At.Seconds())
	}
	return at
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios() {
		if !s.Dated {
			continue
		}
		asked := 0
		for _, p := range Simulate(500, Slots, s) {
			if s.Away.has(p.At) {
				asked++
			}
		}
		assert.LessOrEqual(t, asked, 500, "%s: each node is told once", s.Name)
	}
}

func TestCurve(t *testing.T) {
	t.Parallel()
	polls := []Poll{{0, true}, {59 * time.Second, false}, {time.Minute, true}, {3 * time.Minute, true}, {4 * time.Minute, true}}
	got := Curve(polls, Span{0, 4*time.Minute + 30*time.Second}, time.Minute)
	assert.Equal(t, []float64{21. / 60, 20. / 60, 0, 20. / 60}, got, "the bin that is not whole is left out")
}

// A node begins after its next poll only if the catalog still allows it, and every node has polled within the interval.
func TestEditReachesEachNodeAtItsNextPoll(t *testing.T) {
	t.Parallel()
	for _, w := range Waves() {
		begun := w.Begin()
		if w.Edit == 0 {
			assert.Len(t, begun, w.Nodes, "all come to their turn")
			assert.LessOrEqual(t, begun[len(begun)-1].At, w.Spread+w.Interval)
			assert.InDelta(t, 50, w.share(begun, w.Spread/2), 2, "evenly")
			continue
		}
		for _, b := range begun {
			require.Less(t, b.At, b.Told, "%s: %s waited, and has begun", w.Name, b.Node)
			require.LessOrEqual(t, b.Told, w.Edit+w.Interval)
		}
		late := w.share(begun, 1000*time.Hour) - w.share(begun, w.Edit)
		assert.Less(t, late, 100*w.Interval.Hours()/w.Spread.Hours(), "%s: began although the edit was published", w.Name)
	}
}
