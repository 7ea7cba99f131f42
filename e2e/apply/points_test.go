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

// scenario is a way in which a pod gets another release, on its own node, with the points at which the daemon is
// killed.
type scenario struct {
	name     string
	long     string     // the tag of the nth release, with a %d
	fault    node.Fault // of each release; empty: it comes up
	pickedUp bool       // kubelet picks it up
	// putBack: after a kill at such a point, the unit's ExecStopPost= runs before the daemon starts again. Otherwise
	// the daemon itself puts back the pod manifest.
	putBack func(label string) bool
	at      func(label string) bool
	crash   []string // points in the rollback of a crashing release
}

// Together the scenarios kill at each point that one of them passes.
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
		name: "pickedUp", long: rebuilds, pickedUp: true, at: func(l string) bool { return in(l, "start") },
		crash: []string{"roll back: save after", "roll back: set aside after"},
	},
}

const (
	rebuilds  = "4.0.0-rev1-build1.%d"
	revisions = "4.0.0-rev%d-build1.1"
)

func in(label, phase string) bool { return strings.HasPrefix(label, phase+": ") }

// goesDown reports points while the pod ends, whose manifest is set aside.
func goesDown(label string) bool { return isOf(label, "set aside", "sandbox ready", "clear") }

// comesUp reports points while its manifest is written again.
func comesUp(label string) bool { return isOf(label, "write", "save 2", "put back 2", "keep") }

// isOf reports points of one of these calls.
func isOf(label string, calls ...string) bool {
	return slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(label, ": "+call) })
}

// The daemon is killed once at every point of an apply and of a rollback (agent/agenttest/kill_points.go defines
// points). After the next start the pod runs its old release, and the new one is offered again; or the new one, after a
// health check; or it was rolled back. `make test` has every fourth point of one scenario. Fakes in simulated time have
// each (agent/power_cut_test.go), and so has `make soak`, which adds IUA_ROUNDS random points in each scenario.
func TestKilledInAnApply(t *testing.T) {
	t.Parallel()
	rounds, seed := story.SoakRounds(t, 0), uint64(time.Now().UnixNano())
	var all pointsTally
	// Not t.Parallel: the nodes mostly wait, so they run concurrently on any number of processors.
	var nodes sync.WaitGroup
	scenarios, nth := scenarios, 1
	if !node.Soak {
		scenarios, nth = scenarios[:1], 4
	}
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
				for i := 0; i < len(at); i += nth {
					label := at[i]
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

// distinct returns the points with an event between them. A point before a call equals the point after the previous
// one, unless the record distinguishes them.
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

// pointsTally has the results of all scenarios.
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

// report prints all points, and asserts that there was a kill at each distinct one.
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
	if node.Soak {
		assert.GreaterOrEqual(t, len(p.moments), 25)
		assert.Empty(t, missed, "nobody was killed there")
	}
}
