// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// scenario is how a pod comes to another release, on a node of its own, and at which points the daemon is killed there.
type scenario struct {
	name    string
	long    string     // the tag of the nth release, with %d in it
	fault   node.Fault // of each release; empty: it comes up
	adopted bool       // kubelet takes it by itself
	// putBack: after a kill at a point where it is so, the unit's ExecStopPost= runs before the daemon starts again.
	// Else the daemon itself puts back what is set aside.
	putBack func(label string) bool
	at      func(label string) bool
	crash   []string // points in the rollback of a release that crashes
}

// Together the scenarios kill at each point that one of them comes to.
var scenarios = []scenario{
	{name: "rebuild", long: rebuilds, at: func(l string) bool { return in(l, "apply") || in(l, "report") }},
	{
		name: "revision", long: revisions, putBack: goesDown,
		at: func(l string) bool {
			return in(l, "apply") && (goesDown(l) || comesUp(l)) || in(l, "report") && isOf(l, "table")
		},
	},
	{name: "rebuild that crashes", long: rebuilds, fault: node.Crash, at: func(l string) bool {
		return in(l, "roll back") && (goesDown(l) || isOf(l, "save before"))
	}},
	{name: "revision that is never ready", long: revisions, fault: node.Unready, at: func(l string) bool {
		return in(l, "roll back") && (comesUp(l) || isOf(l, "put back")) || in(l, "report") && isOf(l, "save before", "save after")
	}},
	{name: "rebuild that is never ready", long: rebuilds, fault: node.Unready, at: func(l string) bool {
		return in(l, "roll back") && !goesDown(l) && !comesUp(l) && !isOf(l, "put back", "save before")
	}},
	{
		name: "adopted", long: rebuilds, adopted: true, at: func(l string) bool { return in(l, "start") },
		crash: []string{"roll back: save after", "roll back: set aside after"},
	},
}

const (
	rebuilds  = "4.0.0-rev1-build1.%d"
	revisions = "4.0.0-rev%d-build1.1"
)

func in(label, phase string) bool { return strings.HasPrefix(label, phase+": ") }

// goesDown: while the pod ends, whose manifest is set aside.
func goesDown(label string) bool { return isOf(label, "set aside", "sandbox ready", "clear") }

// comesUp: while its manifest is written anew.
func comesUp(label string) bool { return isOf(label, "write", "save 2", "put back 2", "keep") }

// isOf: at one of these calls.
func isOf(label string, calls ...string) bool {
	return slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(label, ": "+call) })
}

// The daemon is killed once at every moment of an apply and of a rollback (agent/agenttest/kill_points.go has what
// a point is). After the next start the pod is on its old release, and the new one is offered again; or on the new one,
// and that is proved; or it was rolled back. `make soak` sets IUA_ROUNDS, the number of further rounds at random points
// in each scenario.
func TestKilledInAnApply(t *testing.T) {
	t.Parallel()
	rounds, seed := story.SoakRounds(t, 0), uint64(time.Now().UnixNano())
	var all pointsTally
	// Not t.Parallel: they wait most of the time, and so go side by side on any number of processors.
	var nodes sync.WaitGroup
	for i, s := range scenarios {
		nodes.Go(func() {
			t.Run(s.name, func(t *testing.T) {
				r := newPointsRig(t, s)
				if i == 0 {
					r.onlyForTests()
				}
				labels := r.record()
				moments := distinct(labels)
				all.seen(labels, moments)
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				at := append(slices.DeleteFunc(moments, func(l string) bool { return !s.at(l) }), s.crash...)
				for range rounds {
					at = append(at, labels[random.IntN(len(labels))])
				}
				for _, label := range at {
					if t.Run("killed at "+label, func(t *testing.T) { r.round(t, label) }); r.killed[label] {
						all.killed(label)
					}
				}
			})
		})
	}
	nodes.Wait()
	all.report(t)
	t.Logf("seed %d", seed)
}

// distinct are the points between which something happens. One before a call is the moment after what came before it,
// but where the record tells the one from the other.
func distinct(labels []string) []string {
	var moments []string
	last := ""
	for _, label := range labels {
		phase, _, _ := strings.Cut(label, ":")
		if phase != last || !strings.HasSuffix(label, " before") {
			moments = append(moments, label)
		}
		last = phase
	}
	return moments
}

// pointsTally is what all scenarios have seen.
type pointsTally struct {
	lock    sync.Mutex
	moments map[string]bool
	kills   map[string]int // by label
}

func (p *pointsTally) seen(labels, moments []string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.kills == nil {
		p.kills, p.moments = map[string]int{}, map[string]bool{}
	}
	for _, l := range labels {
		p.kills[l] += 0
	}
	for _, m := range moments {
		p.moments[m] = true
	}
}

func (p *pointsTally) killed(label string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.kills[label]++
}

// report shows all points, and asserts that there was a kill at each that is a moment of its own.
func (p *pointsTally) report(t *testing.T) {
	t.Helper()
	var missed []string
	for moment := range p.moments {
		if p.kills[moment] == 0 && !isRepeated(moment) {
			missed = append(missed, moment)
		}
	}
	var list strings.Builder
	for _, label := range slices.Sorted(maps.Keys(p.kills)) {
		fmt.Fprintf(&list, "\n%d kills at %s", p.kills[label], label)
	}
	t.Logf("%d points, %d of them moments of their own:%s", len(p.kills), len(p.moments), &list)
	assert.GreaterOrEqual(t, len(p.moments), 25)
	assert.Empty(t, missed, "nobody was killed there")
}
