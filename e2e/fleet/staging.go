// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// Link is the bandwidth of a registry with 1 Gbit/s, in bytes per second.
const Link = 125e6

// Rebuild is the number of bytes that each node pulls.
const Rebuild = 200e6

// Staging is a rebuild that all nodes find at their next poll and pull.
type Staging struct {
	Name     string
	Nodes    int
	Interval time.Duration
	Spread   time.Duration // stagingSpread: each node waits for its own part of it
}

// Stagings returns those of docs/dev/fleet-figures.md.
func Stagings() []Staging {
	return []Staging{
		{"interval 12 h", 10_000, 12 * time.Hour, 0},
		{"interval 1 h", 10_000, time.Hour, 0},
		{"interval 1 h, stagingSpread 6 h", 10_000, time.Hour, 6 * time.Hour},
	}
}

// Load is the effect of a staging on the link.
type Load struct {
	Staging Staging
	// Wanted is the peak of the nodes' pulls without the limit of the link, in bins of ten minutes: bytes per second.
	Wanted float64
	// Median and Longest are the durations of one node's pull, and End the end of the last one.
	Median, Longest, End time.Duration
	Sent                 []float64 // bytes per second, in bins of ten minutes
}

const loadBin = 10 * time.Minute

// Stage simulates a staging from the publication on. All running pulls share the link evenly, and it is the only limit.
func Stage(s Staging) Load {
	begins := s.begins()
	// With even shares, a pull ends when each share has grown by its size since it began; so pulls end in the order in
	// which they began.
	var durations []time.Duration
	var served []chunk
	now, share, next := 0.0, 0.0, 0 // seconds, bytes
	var running []float64           // the share at which each pull ends, ascending
	for next < len(begins) || len(running) > 0 {
		if len(running) == 0 {
			now = begins[next]
		} else {
			until := now + (running[0]-share)*float64(len(running))/Link
			if next < len(begins) {
				until = min(until, begins[next])
			}
			share += (until - now) * Link / float64(len(running))
			served = append(served, chunk{now, until})
			now = until
		}
		if next < len(begins) && begins[next] <= now {
			running = append(running, share+Rebuild)
			next++
			continue
		}
		if len(running) > 0 && running[0] <= share+1 { // a byte, for rounding errors
			running = running[1:]
			durations = append(durations, seconds(now-begins[len(durations)]))
		}
	}
	l := Load{Staging: s, End: seconds(now), Longest: slices.Max(durations), Sent: sent(served)}
	slices.Sort(durations)
	l.Median = durations[len(durations)/2]
	l.Wanted = wanted(begins)
	return l
}

// begins returns the seconds after publication at which nodes start to pull, sorted.
func (s Staging) begins() []float64 {
	published := Epoch()
	var begins []float64
	for i := range s.Nodes {
		id, r := nodeID(i), rand.New(rand.NewPCG(seed, uint64(i)))
		delay := time.Duration(r.Float64() * float64(s.Spread))
		begins = append(begins, policy.NextSlot(published, s.Interval, id).Add(delay).Sub(published).Seconds())
	}
	slices.Sort(begins)
	return begins
}

// chunk is a period in which the link is full.
type chunk struct{ from, to float64 }

// sent sums up the periods by bin.
func sent(served []chunk) []float64 {
	bins := make([]float64, int(served[len(served)-1].to/loadBin.Seconds())+1)
	for _, c := range served {
		for from := c.from; from < c.to; {
			i := int(from / loadBin.Seconds())
			to := min(c.to, float64(i+1)*loadBin.Seconds())
			if i < len(bins) {
				bins[i] += (to - from) * Link / loadBin.Seconds()
			}
			from = max(to, from+1e-9)
		}
	}
	return bins
}

// wanted returns the peak of pulls that start in a bin.
func wanted(begins []float64) float64 {
	bins := map[int]float64{}
	most := 0.0
	for _, at := range begins {
		i := int(at / loadBin.Seconds())
		bins[i] += Rebuild / loadBin.Seconds()
		most = max(most, bins[i])
	}
	return most
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
