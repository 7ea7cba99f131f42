// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleetlock"
)

const (
	turnNodes = 8
	turnImage = "registry.example.com/etcd"
)

// turns watches that one node at a time is between a stop and the end of its lock.
type turns struct {
	t  *testing.T
	mu sync.Mutex
	in map[string]bool
	// most is how many nodes were in at once.
	most, stops, kills int
}

func (w *turns) enter(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in[id] = true
	w.stops++
	w.most = max(w.most, len(w.in))
}

func (w *turns) leave(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.in, id)
}

// errKilled ends an agent in the middle of a call.
var errKilled = errors.New("killed")

// turnNode is a node of the fleet: the agent's core, with a node in memory and the real lock server.
type turnNode struct {
	*agenttest.World
	id     string
	lock   fleet.Locker
	turns  *turns
	random *rand.Rand // of this node's goroutine
	deadly bool
}

// mayDie kills the agent at one call in ten, in rounds with kills.
func (n *turnNode) mayDie() {
	if n.deadly && n.random.IntN(10) == 0 {
		n.turns.mu.Lock()
		n.turns.kills++
		n.turns.mu.Unlock()
		panic(errKilled)
	}
}

// The ports around which an agent may die: its lock, its record, and what stops containers.
type (
	deadlyLock     struct{ *turnNode }
	deadlyRecorder struct {
		record.Recorder
		*turnNode
	}
	deadlyPods struct {
		node.Pods
		*turnNode
	}
)

func (l deadlyLock) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	l.mayDie()
	answer, err := l.lock.Lock(ctx)
	l.mayDie()
	return answer, err
}

func (l deadlyLock) Unlock(ctx context.Context) error {
	l.mayDie()
	l.turns.leave(l.id) // it stops nothing any more without a new lock
	err := l.lock.Unlock(ctx)
	l.mayDie()
	return err
}

func (r deadlyRecorder) Save(ctx context.Context, rec record.Record) error {
	r.mayDie()
	err := r.Recorder.Save(ctx, rec)
	r.mayDie()
	return err
}

func (p deadlyPods) Stop(ctx context.Context, id string, grace time.Duration) error {
	p.turns.enter(p.id)
	p.mayDie()
	err := p.Pods.Stop(ctx, id, grace)
	p.mayDie()
	return err
}

// agent is a new process of the agent: it knows what is on the disk.
func (n *turnNode) agent() *agent.Agent {
	a := n.Agent()
	a.FleetLock, a.Recorder, a.Pods = deadlyLock{n}, deadlyRecorder{a.Recorder, n}, deadlyPods{a.Pods, n}
	return a
}

// survives runs what an agent does; false: it was killed.
func (n *turnNode) survives(do func(*agent.Agent) error) (alive bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if r != any(errKilled) {
				panic(r)
			}
			alive = false
		}
	}()
	return true, do(n.agent())
}

// update applies the newest release, again and again, as somebody does who knows nothing of the other nodes. It gives up
// when ctx ends.
func (n *turnNode) update(ctx context.Context, want release.Release) error {
	for ctx.Err() == nil {
		_, err := n.survives(func(a *agent.Agent) error {
			if _, err := a.Cycle(ctx, source.PollAll); err != nil {
				return err
			}
			_, _, err := a.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", n.id, err)
		}
		n.Clock.Add(time.Hour) // a lock that could not be given back is given back in the next cycle
		var s status.Status
		alive, err := n.survives(func(a *agent.Agent) (err error) { s, err = a.Cycle(ctx, source.PollNone); return err })
		if err != nil {
			return fmt.Errorf("%s: %w", n.id, err)
		}
		c, runs := n.Node.Container("etcd.yaml", "etcd")
		if alive && runs && c.Running && c.Digests[0] == want.Digest && s.Lock.State == fleet.LockFree {
			return nil
		}
	}
	return fmt.Errorf("%s: not updated in time", n.id)
}

// Eight agents restart their etcd under one lock, of a real server over a real etcd, all at once, in 20 rounds. In every
// second round agents are killed anywhere, and in one of either kind etcd's leader. Two are never in it at once, all come
// to their end, and no lock is left. `make soak` sets IUA_ROUNDS, the number of rounds.
func TestEightAgentsTakeTurns(t *testing.T) {
	t.Parallel()
	rounds := story.SoakRounds(t, 20)
	cluster := story.StartEtcd(t)
	url := lockServer(t, cluster.Store())
	watch := &turns{t: t, in: map[string]bool{}}
	var nodes []*turnNode
	for i := range turnNodes {
		w := agenttest.NewWorld()
		id := fleetlock.ID(fmt.Sprintf("node %d", i))
		n := &turnNode{World: w, id: id, lock: lockOf(t, url, id), turns: watch, random: rand.New(rand.NewPCG(1, uint64(i)))}
		w.Policy.Lock = fleet.Lock{Pods: fleet.LockControlPlane, Server: url, Group: "masters", ID: id}
		w.Policy.Manage = map[string]bool{"etcd.yaml": true}
		w.Policy.ApplyTimeout = time.Minute
		w.Registry.Release(turnImage, "3.4.23", 1, "1.1")
		w.Node.PutTemplate("etcd.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\nspec:\n  containers:\n  - name: etcd\n    image: "+
			turnImage+":3.4.23-rev1\n"))
		_, err := n.Agent().Cycle(t.Context(), source.PollAll)
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), story.Ready)
		errs := make([]error, len(nodes))
		var group sync.WaitGroup
		for i, n := range nodes {
			n.deadly = round%2 == 1
			want := n.Registry.Release(turnImage, "3.4.23", 1, fmt.Sprintf("1.%d", round+2))
			group.Go(func() { errs[i] = n.update(ctx, want) })
		}
		if round%11 == 6 {
			leader := cluster.Leader()
			leader.Kill()
			cluster.Start(leader)
		}
		group.Wait()
		cancel()
		require.NoError(t, errors.Join(errs...), "round %d", round)
		require.Empty(t, watch.in, "round %d", round)
		require.Equal(t, 1, watch.most, "round %d: nodes that were in at once", round)
	}
	last, err := lockOf(t, url, "last").Lock(t.Context())
	require.NoError(t, err, "no lock is left")
	assert.Len(t, last.Holders, 1)
	assert.GreaterOrEqual(t, watch.stops, turnNodes*rounds)
	assert.Greater(t, watch.kills, rounds)
	t.Logf("%d restarts, %d kills", watch.stops, watch.kills)
}
