// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// Wave is a release that a catalog rolls out over a fleet in mode auto, with an edit of the catalog during the rollout.
type Wave struct {
	Name     string
	Nodes    int
	Interval time.Duration // of the nodes' polls
	Spread   time.Duration // of the rollout, from its publication
	Edit     time.Duration // after the publication; 0: none
	// Change is the edit of the release.
	Change func(*format.Release)
}

// Pause moves the rollout beyond the simulated time; Withdraw withdraws the release.
func Pause(r *format.Release) {
	r.Rollout = &format.Rollout{From: r.Rollout.From.AddDate(1, 0, 0), Hours: r.Rollout.Hours}
}

// Withdraw withdraws the release.
func Withdraw(r *format.Release) { r.Withdrawn = &format.Withdrawal{Reason: "broken"} }

// Waves returns those of docs/fleets.md.
func Waves() []Wave {
	const day = 24 * time.Hour
	return []Wave{
		{"rollout of 72 h", 10_000, 12 * time.Hour, 3 * day, 0, nil},
		{"paused after 24 h", 10_000, 12 * time.Hour, 3 * day, day, Pause},
		{"withdrawn after 24 h, interval 1 h", 10_000, time.Hour, 3 * day, day, Withdraw},
	}
}

// Begun is when a node begins, after the publication.
type Begun struct {
	Node string
	At   time.Duration
	// Told is the node's first poll after the edit; 0: none.
	Told time.Duration
}

const waveImage = "registry.example.com/velum"

// Begin simulates a wave, and returns the nodes that begin, in order.
func (w Wave) Begin() []Begun {
	published := Epoch()
	first := format.Release{Tag: "4.0.0-rev1-build1.2", Digest: digest.FromString(w.Name)}
	first.Rollout = &format.Rollout{From: published, Hours: int(w.Spread.Hours())}
	edited := first
	if w.Change != nil {
		w.Change(&edited)
	}
	var out []Begun
	for i := range w.Nodes {
		id := nodeID(i)
		at, told := catalog.Policy{MachineID: id}, time.Time{}
		may := beginsAt(at, first, policy.NextSlot(published, w.Interval, id))
		if w.Edit > 0 {
			if told = policy.NextSlot(published.Add(w.Edit), w.Interval, id); !may.Before(told) {
				may = beginsAt(at, edited, told)
			}
		}
		if may.IsZero() || may.After(published.Add(2*w.Spread)) {
			continue
		}
		b := Begun{Node: id, At: may.Sub(published)}
		if !told.IsZero() {
			b.Told = told.Sub(published)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Begun) int { return int(a.At - b.At) })
	return out
}

// beginsAt returns when a node that learns of a release at a time applies it automatically; zero: never.
func beginsAt(c catalog.Policy, r format.Release, learns time.Time) time.Time {
	listing := catalog.Listing{Catalog: "c", Version: 1, Images: map[string][]format.Release{waveImage: {r}}}
	if rule, _, _ := c.Refuses(listing, release.Release{Repository: waveImage, Digest: r.Digest}); rule != "" {
		return time.Time{}
	}
	if at := c.RolloutTime(r); at.After(learns) {
		return at
	}
	return learns
}

// share returns the percentage of a fleet that has begun by a time.
func (w Wave) share(begun []Begun, by time.Duration) float64 {
	n := 0
	for n < len(begun) && begun[n].At <= by {
		n++
	}
	return 100 * float64(n) / float64(w.Nodes)
}

// Standing is how many nodes stage, run and failed a release, as `image-catalog fleet` counts them.
type Standing struct{ Staged, Run, Failed int }

// Standing counts the nodes at a time after the publication. A node stages the release at its first poll; the failed
// ones, of those that begin, do not run it.
func (w Wave) Standing(begun []Begun, at time.Duration, failed ...string) Standing {
	var s Standing
	for _, b := range begun {
		switch {
		case b.At <= at && slices.Contains(failed, b.Node):
			s.Failed++
		case b.At <= at:
			s.Run++
		case policy.NextSlot(Epoch(), w.Interval, b.Node).Sub(Epoch()) <= at:
			s.Staged++
		}
	}
	return s
}

// failedNodes fail in the figure.
func failedNodes() []string { return []string{nodeID(17), nodeID(4711)} }
