// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/node/state"
)

// perPod is the number of containers of each pod, each with an image of its own.
const perPod = 4

// large is a node with many pods.
type large struct {
	inv    node.Inventory
	offers map[release.Question]source.Offer
	record record.Record
	policy policy.Policy
	now    time.Time
	status status.Status
	world  *agenttest.World
}

// newLarge returns a node whose pods run, and for which the registry has a rebuild of each image.
func newLarge(tb testing.TB, containers int) large {
	tb.Helper()
	w := agenttest.NewWorld()
	w.Policy.Rule, w.Policy.NodeName = newWorldRule, agenttest.NodeName
	w.Node.Kubelet = false
	image := func(n int) string { return fmt.Sprintf("registry.suse.com/caasp/v4/image%d", n) }
	for n := range containers {
		w.Registry.Release(image(n), "4.0.0", 1, "1.1")
	}
	for pod := range containers / perPod {
		var all []string
		for n := pod * perPod; n < (pod+1)*perPod; n++ {
			all = append(all, fmt.Sprintf("c%d=%s:4.0.0-rev1", n, image(n)))
		}
		name := fmt.Sprintf("pod%d", pod)
		w.Node.PutTemplate(name+".yaml", podYAML(name, all...))
	}
	a := w.Agent()
	_, err := a.Cycle(tb.Context(), source.PollAll)
	require.NoError(tb, err)
	w.Node.Kubelet = true
	w.Node.Sync()
	for n := range containers {
		w.Registry.Release(image(n), "4.0.0", 1, "1.2")
	}
	s, err := a.Cycle(tb.Context(), source.PollAll)
	require.NoError(tb, err)
	require.Len(tb, s.Updates, containers)
	out := large{status: s, world: w, now: w.Clock.Now()}
	out.inv, out.offers, out.record, out.policy = a.Arguments(tb.Context())
	return out
}

// steps are the parts of a cycle whose work grows with the number of containers.
func (l large) steps(tb testing.TB) map[string]func() {
	tb.Helper()
	store := state.New(tb.TempDir(), tb.TempDir(), slog.New(slog.DiscardHandler))
	views := follow.ReadPods(l.inv, l.record, l.policy)
	pl := plan.Decide(l.inv, l.offers, l.record, l.policy, l.now)
	agent := l.world.Agent()
	return map[string]func(){
		"views":   func() { follow.ReadPods(l.inv, l.record, l.policy) },
		"running": func() { follow.Running(l.inv, views) },
		"decide":  func() { plan.Decide(l.inv, l.offers, l.record, l.policy, l.now) },
		"in use":  func() { plan.InUse(pl, l.offers, l.inv, l.now) },
		"table":   func() { localregistry.Make(follow.LocalRegistryFacts(l.inv, l.record, l.policy)) },
		"record":  func() { assert.NoError(tb, store.Save(tb.Context(), l.record)) },
		"status": func() {
			_, err := json.Marshal(l.status)
			assert.NoError(tb, err)
		},
		"cycle": func() {
			_, err := agent.Cycle(tb.Context(), source.PollNone)
			assert.NoError(tb, err)
		},
	}
}

// cpu returns the CPU time of this process, in seconds.
func cpu(tb testing.TB) float64 {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// exponent returns the power of n with which a figure grows between two sizes.
func exponent(few, many float64, sizes [2]int) float64 {
	return math.Log(many/few) / math.Log(float64(sizes[1])/float64(sizes[0]))
}

// Four times the containers need four times the memory, in each step.
func TestGrowthIsLinear(t *testing.T) {
	sizes := [2]int{100, 400}
	used := map[string][]float64{}
	for _, containers := range sizes {
		for name, step := range newLarge(t, containers).steps(t) {
			var before, after runtime.MemStats
			step()               // fills the caches
			least := math.Inf(1) // a collection between two steps empties pools
			for range 3 {
				runtime.ReadMemStats(&before)
				step()
				runtime.ReadMemStats(&after)
				least = min(least, float64(after.TotalAlloc-before.TotalAlloc))
			}
			used[name] = append(used[name], least)
		}
	}
	for name, u := range used {
		assert.Less(t, exponent(u[0], u[1], sizes), 1.5, "%s: %.0f and %.0f bytes", name, u[0], u[1])
	}
}

// BenchmarkGrowth measures each step of a cycle on nodes of two sizes, and prints the exponent of its growth.
func BenchmarkGrowth(b *testing.B) {
	used := map[string][]float64{}
	sizes := [2]int{1200, 4800}
	for _, containers := range sizes {
		l := newLarge(b, containers)
		for name, step := range l.steps(b) {
			b.Run(fmt.Sprintf("%s/%d", name, containers), func(b *testing.B) {
				b.ReportAllocs()
				began := cpu(b)
				for b.Loop() {
					step()
				}
				one := (cpu(b) - began) / float64(b.N)
				b.ReportMetric(one*1000, "cpu-ms/op")
				used[name] = append(used[name], one)
			})
		}
	}
	for name, u := range used {
		fmt.Printf("%s: exponent %.2f\n", name, exponent(u[0], u[len(u)-1], sizes))
	}
}
