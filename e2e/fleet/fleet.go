// SPDX-License-Identifier: Apache-2.0

// Package fleet simulates many nodes that poll one registry, with the agent's functions for the times of polls
// (policy.NextSlot, policy.RetryTime), and with those of comparable programs.
//
// A poll is one node's cycle: Heads HEAD requests within a second. A bin is a period in which polls are counted; a
// curve has the requests per second of each bin. The mean is that of an undisturbed fleet: nodes * Heads / interval.
// The peak is the highest bin. Nodes are independent, so the shape of a curve is that of any fleet; small fleets add
// the noise of few polls in a bin. Every run of a simulation gives the same numbers.
package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Interval is the agent's default time between two polls of a node.
const Interval = 12 * time.Hour

// Heads is the number of a node's followed tags, one HEAD request each in a poll.
const Heads = 20

// seed of all randomness. Another one changes the third digit of the results.
const seed = 20261121

// Epoch is the start of the simulated time: a midnight, for calendar timers.
func Epoch() time.Time { return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) }

// Span is a period of simulated time, since the epoch; empty: never.
type Span struct{ From, To time.Duration }

func (s Span) has(at time.Duration) bool { return s.From <= at && at < s.To }

// Scenario is a disturbance of the fleet and its registry.
type Scenario struct {
	Name string
	// Cut is a power cut of all nodes; all of them start in its last second.
	Cut Span
	// Away is when the registry does not answer.
	Away Span
	// Dated: it answers 503 meanwhile, with the end of Away in Retry-After.
	Dated bool
	// Shown is the drawn period, Judged the one in which the peak is determined.
	Shown, Judged Span
}

// Scenarios returns those that the tests judge.
func Scenarios() []Scenario {
	const h = time.Hour
	cut := Span{11*h + 30*time.Minute, 12*h + 30*time.Minute}
	hour, half, days := Span{24 * h, 25 * h}, Span{24 * h, 36 * h}, Span{24 * h, 96 * h}
	around := func(s Span, before, after time.Duration) Span { return Span{s.From - before, s.To + after} }
	then := func(s Span) Span { return Span{s.To, s.To + 24*h} }
	return []Scenario{
		{Name: "steady", Shown: Span{0, 24 * h}, Judged: Span{0, 24 * h}},
		{Name: "power cut of 1 h", Cut: cut, Shown: Span{0, 24 * h}, Judged: then(cut)},
		{Name: "registry away for 1 h", Away: hour, Shown: around(hour, 2*h, 9*h), Judged: then(hour)},
		{Name: "registry away for 12 h", Away: half, Shown: around(half, 2*h, 10*h), Judged: then(half)},
		{Name: "registry away for 3 days", Away: days, Shown: around(days, 12*h, 36*h), Judged: then(days)},
		{Name: "503 with a date, 1 h", Away: hour, Dated: true, Shown: around(hour, 2*h, 9*h), Judged: then(hour)},
		{Name: "503 with a date, 3 days", Away: days, Dated: true, Shown: around(days, 12*h, 36*h), Judged: then(days)},
	}
}

// Poll is one poll of one node.
type Poll struct {
	At       time.Duration // since the epoch
	Answered bool
}

// Requests returns the number of requests of the poll: an agent that was refused for one image does not ask the same
// host for the others.
func (p Poll) Requests() int {
	if p.Answered {
		return Heads
	}
	return 1
}

// Simulate returns the polls of a number of nodes, in order, until the end of the scenario's periods.
func Simulate(nodes int, pace Pace, s Scenario) []Poll {
	var all []Poll
	for i := range nodes {
		n := &Node{ID: nodeID(i), rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		all = n.live(all, pace, s)
	}
	slices.SortFunc(all, func(a, b Poll) int { return int(a.At - b.At) })
	return all
}

// live appends a node's polls. It was installed in the interval before the epoch.
func (n *Node) live(polls []Poll, pace Pace, s Scenario) []Poll {
	begin, end := Epoch(), max(s.Shown.To, s.Judged.To)
	now := time.Duration(-n.Jitter() * float64(Interval))
	next := n.start(pace, now)
	for {
		if s.Cut.To > 0 && now < s.Cut.From && next >= s.Cut.From {
			now = s.Cut.To
			next = n.start(pace, now)
			continue
		}
		if next >= end {
			return polls
		}
		now = next
		if !s.Away.has(now) {
			n.Failures, n.Wish = 0, time.Time{}
			polls = append(polls, Poll{now, true})
		} else {
			if n.Wish.IsZero() { // otherwise the node waits for Retry-After: nothing is sent, and nothing fails
				n.Failures++
				polls = append(polls, Poll{now, false})
			}
			if s.Dated {
				n.Wish = begin.Add(s.Away.To)
			}
		}
		next = pace(n, begin.Add(now)).Sub(begin)
	}
}

func (n *Node) start(pace Pace, now time.Duration) time.Duration {
	n.Started = true
	defer func() { n.Started = false }()
	return pace(n, Epoch().Add(now)).Sub(Epoch())
}

// nodeID looks like a machine-id.
func nodeID(i int) string { return fmt.Sprintf("%032x", i) }
