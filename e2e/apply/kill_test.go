// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// victim is the process killed by SIGKILL.
type victim string

const (
	theAgent      victim = "agent"
	theContainerd victim = "containerd"
)

// At every step of a pull, agent and containerd are killed once, and then a few times at random moments: no pin is
// lost, nothing is left over, and the staged content is correct. `make test` has a fifth of the steps for each of the
// two, `make soak` each of the newest containerd, a sample of the others, and IUA_ROUNDS random moments.
func TestKilledInAPull(t *testing.T) {
	t.Parallel()
	rounds, seed := story.SoakRounds(t, 2), uint64(time.Now().UnixNano())
	type part struct {
		version   node.Version
		victims   []victim
		from, nth int // of the steps
	}
	parts := []part{{node.Containerd2, []victim{theAgent, theContainerd}, 0, 5}}
	if node.Soak {
		parts = []part{
			{node.Containerd2, []victim{theAgent}, 0, 1},
			{node.Containerd2, []victim{theContainerd}, 0, 1},
			{node.Containerd17, []victim{theAgent, theContainerd}, 0, 5},
			{node.Containerd16, []victim{theAgent, theContainerd}, 2, 5},
		}
	}
	for _, part := range parts {
		t.Run(fmt.Sprint("containerd ", part.version, ", kill ", part.victims), func(t *testing.T) {
			t.Parallel()
			r := newKillRig(t, part.version)
			steps := r.steps()
			for k, v := range part.victims { // each has its own steps
				for i := part.from + k*part.nth/len(part.victims); i < len(steps); i += part.nth {
					s := steps[i]
					if (v == theContainerd) == (i%2 == 0) { // the other victim is killed before the call is passed on
						s = s.orAnswer()
					}
					r.killAt(t, v, s)
				}
			}
			random := rand.New(rand.NewPCG(seed, 0))
			for round := range rounds {
				v := part.victims[round%len(part.victims)]
				r.killAfter(t, v, time.Duration(random.Int64N(int64(r.undisturbed))))
			}
			t.Logf("%d steps in %s; seed %d; %s", len(steps), r.undisturbed, seed, r.tally)
		})
	}
}

// killRig is a node that runs one release and has a rollback target. Releases are published one after another, staged
// and never applied.
type killRig struct {
	*node.Node
	t           *testing.T // of the current subtest
	tap         *node.Tap
	client      *containerd.Client
	cri         *node.CRI
	kept        []string       // digests that stay pinned all the time
	before      []string       // unfinished objects of the running container
	build       int            // of the last release
	undisturbed time.Duration  // duration of an undisturbed cycle with a pull
	staging     map[string]int // how often each step occurs in a staging
	twice       int64          // bytes of the last release that were fetched twice
	tally       tally
}

// tally counts the results of all rounds.
type tally struct {
	killed map[victim]int
	ended  int   // cycles that a killed containerd ended, before or after the pull
	missed int   // steps that did not occur again
	twice  int64 // largest number of bytes fetched twice
}

func (c tally) String() string {
	return fmt.Sprintf("killed %v, which ended %d cycles after the pull; %d steps did not come again; at most %d bytes fetched twice",
		c.killed, c.ended, c.missed, c.twice)
}

const killRepository = "demo/velum"

func newKillRig(t *testing.T, version node.Version) *killRig {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
	r := &killRig{
		Node: n, t: t, tap: n.Tap(), client: n.Containerd.Client(), cri: n.CRI(), build: 2,
		tally: tally{killed: map[victim]int{}},
	}
	port := n.FreePort()
	n.WriteFile(story.ConfigFile, "containerd:\n  socket: "+r.tap.Socket+"\ncri:\n  socket: "+r.tap.Socket+"\n")
	story.Template(n, port, n.Registry.Ref(killRepository+":__TAG__"))
	first := story.Rel(n, killRepository, "4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	second := story.Rel(n, killRepository, "4.0.0-rev1-build1.2")
	story.Check(t, n)
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	require.Equal(t, 0, daemon.Stop().Code)
	r.kept = []string{first, second}
	require.Subset(t, story.Pins(t, n), r.kept)
	n.Kubelet.Stop() // the container keeps running, without a kubelet
	before, err := r.unfinished()
	require.NoError(t, err)
	r.before = slices.Collect(maps.Keys(before))
	return r
}

// publish publishes the next release: three layers of its own, one of them larger than containerd's client sends at
// once (1 MiB).
func (r *killRig) publish() target {
	r.t.Helper()
	r.build++
	p := target{long: fmt.Sprintf("4.0.0-rev1-build1.%d", r.build)}
	for n, size := range []int64{100 << 10, 1100 << 10, 200 << 10} {
		p.layers = append(p.layers, node.Layer{Seed: uint64(10*r.build + n), Size: size})
	}
	p.digest = r.Registry.Publish(killRepository, p.long, node.Image{Layers: p.layers})
	r.Registry.Forget()
	return p
}

// killAt kills the victim at a step of the staging of the next release.
func (r *killRig) killAt(t *testing.T, v victim, s step) {
	t.Helper()
	t.Run(fmt.Sprint(v, " at ", s), func(t *testing.T) {
		r.t = t
		for ; ; s.nth-- {
			trap := r.set(s)
			if r.spring(v, trap.sprung, trap.release, s.nth <= r.staging[s.name]) {
				if strings.HasPrefix(s.name, recordComes) {
					assert.Less(t, r.twice, int64(64<<10), "a whole layer was fetched again")
				}
				return
			}
			// Concurrent fetches have a different order each time, and some calls occur only if the pull is slow.
			r.tally.missed++
			require.Greater(t, s.nth, 1, "%s: no such step", s)
		}
	})
}

// killAfter kills the victim some time after the staging began.
func (r *killRig) killAfter(t *testing.T, v victim, wait time.Duration) {
	t.Helper()
	t.Run(fmt.Sprint(v, " after ", wait), func(t *testing.T) {
		r.t = t
		trap := r.set(step{name: leaseComes, nth: 1})
		due := make(chan struct{})
		go func() {
			select {
			case <-trap.sprung:
				trap.release(true)
				<-time.After(wait)
				close(due)
			case <-t.Context().Done():
			}
		}()
		r.spring(v, due, func(bool) {}, false)
	})
}

// spring lets the agent stage a release and kills the victim when it is due; during says whether that is within the
// staging. It returns false if the agent ended before.
func (r *killRig) spring(v victim, due <-chan struct{}, release func(bool), during bool) bool {
	r.t.Helper()
	p := r.publish()
	run := r.StartAgent("run", "--once", "--output", "json")
	select {
	case <-due:
	case <-run.Done():
		release(true)
		r.unset()
		r.whole(p)
		return false
	case <-time.After(story.Ready):
		require.FailNow(r.t, "neither due nor at an end")
	}
	r.tally.killed[v]++
	if v == theAgent {
		run.Kill()
	} else {
		r.Containerd.Kill()
		r.tap.Follow()
		r.Containerd.Start()
	}
	release(false)
	r.unset()
	if v == theContainerd {
		r.survived(run, during)
	}
	assert.Subset(r.t, story.Pins(r.t, r.Node), r.kept, "a pin is lost")
	s := story.Cycle(r.t, r.Node, 0)
	assert.Equal(r.t, status.StateStaged, s.State, s.Reason)
	r.whole(p)
	return true
}

// survived asserts that a staging continues when containerd is back. Outside of it, the cycle may end with an error.
func (r *killRig) survived(run *node.Process, staging bool) {
	r.t.Helper()
	exit := run.Wait(story.Ready)
	if exit.Code == 0 {
		return
	}
	r.tally.ended++
	log := story.Output(r.t, run.Stderr) + story.Output(r.t, run.Stdout)
	assert.False(r.t, staging, "%s", log)
	assert.Contains(r.t, log, r.Path(r.tap.Socket)+": ")
}
