// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"
)

// fair is the number of polls that a bin must expect to make its peak meaningful: with n random polls, the highest of
// some dozens of bins has about n + 2.5*sqrt(n), which is 1.25 times n at 100 and 2.5 times at 3.
const fair = 100

// minBin and maxBin limit the bins: in finer ones noise dominates, and in coarser ones a recovery would vanish.
const (
	minBin = 5 * time.Minute
	maxBin = time.Hour
)

// Bin returns the shortest bin that expects `fair` polls of an undisturbed fleet, among those that divide an hour or
// are whole hours.
func Bin(nodes int) time.Duration {
	bins := []time.Duration{minBin, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, maxBin}
	for _, bin := range bins {
		if float64(nodes)*bin.Seconds()/Interval.Seconds() >= fair {
			return bin
		}
	}
	return maxBin
}

// Mean returns the requests per second of an undisturbed fleet.
func Mean(nodes int) float64 { return float64(nodes) * Heads / Interval.Seconds() }

// Curve returns the requests per second for each bin of the span, without an incomplete last bin.
func Curve(polls []Poll, span Span, bin time.Duration) []float64 {
	bins := make([]float64, (span.To-span.From)/bin)
	for _, p := range polls {
		if i := int((p.At - span.From) / bin); p.At >= span.From && i < len(bins) {
			bins[i] += float64(p.Requests()) / bin.Seconds()
		}
	}
	return bins
}

// Result is the effect of a scenario on the registry.
type Result struct {
	Nodes    int
	Scenario Scenario
	Bin      time.Duration
	Ratio    float64 // the peak in such bins, relative to the mean
	Minute   float64 // the peak in bins of one minute, requests per second
	Polls    []Poll
}

// Judge simulates, and returns the peak.
func Judge(nodes int, pace Pace, s Scenario) Result {
	r := Result{Nodes: nodes, Scenario: s, Bin: Bin(nodes), Polls: Simulate(nodes, pace, s)}
	r.Ratio = slices.Max(Curve(r.Polls, s.Judged, r.Bin)) / Mean(nodes)
	r.Minute = slices.Max(Curve(r.Polls, s.Judged, time.Minute))
	return r
}
