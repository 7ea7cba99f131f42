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
	rig "github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

const (
	turnNodes = 8
	turnImage = "registry.example.com/etcd"
)

// turns asserts that only one node at a time is between a stop and its unlock.
type turns struct {
	t  *testing.T
	mu sync.Mutex
	in map[string]bool
	// most is the largest number of concurrent nodes.
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

// errKilled ends an agent during a call.
var errKilled = errors.New("killed")

// turnNode is a node of the fleet: the agent's core, with a node in memory and the real lock server.
type turnNode struct {
	*agenttest.World
	id     string
	lock   fleet.Locker
	turns  *turns
	random *rand.Rand // of this node's goroutine
	deadly bool
	dead   bool               // the agent was killed in Stop
	kill   context.CancelFunc // ends what the agent does
}

// dies reports whether the agent dies at this call: one call in ten, in rounds with kills.
func (n *turnNode) dies() bool {
	if !n.deadly || n.random.IntN(10) != 0 {
		return false
	}
	n.turns.mu.Lock()
	defer n.turns.mu.Unlock()
	n.turns.kills++
	return true
}

// mayDie kills the agent at some calls. An agent that Stop has killed calls nothing any more.
func (n *turnNode) mayDie() {
	if n.dead || n.dies() {
		panic(errKilled)
	}
}

// The ports at which an agent may die: its lock, its record, and the stop of containers.
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

// Stop runs in a goroutine of the agent, where a panic would end the test: the call ends here, and the next one of the
// agent panics.
func (p deadlyPods) Stop(ctx context.Context, id string, grace time.Duration) error {
	p.turns.enter(p.id)
	if p.dead = p.dies(); !p.dead {
		err := p.Pods.Stop(ctx, id, grace)
		if p.dead = p.dies(); !p.dead {
			return err
		}
	}
	p.kill()
	return errKilled
}

// agent returns a new process of the agent, which knows only the disk.
func (n *turnNode) agent() *agent.Agent {
	a := n.Agent()
	a.FleetLock, a.Recorder, a.Pods = deadlyLock{n}, deadlyRecorder{a.Recorder, n}, deadlyPods{a.Pods, n}
	return a
}

// survives runs do; false if the agent was killed.
func (n *turnNode) survives(
	ctx context.Context, do func(context.Context, *agent.Agent) error,
) (alive bool, err error) {
	ctx, n.kill = context.WithCancel(ctx)
	defer n.kill()
	n.dead = false
	defer func() {
		if r := recover(); r != nil && r != any(errKilled) {
			panic(r)
		} else if r != nil || n.dead {
			alive, err = false, nil
		}
	}()
	return true, do(ctx, n.agent())
}

// update applies the newest release repeatedly, without regard to the other nodes. It stops when ctx ends.
func (n *turnNode) update(ctx context.Context, want release.Release) error {
	for ctx.Err() == nil {
		_, err := n.survives(ctx, func(ctx context.Context, a *agent.Agent) error {
			if _, err := a.Cycle(ctx, source.PollAll); err != nil {
				return err
			}
			_, _, err := a.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", n.id, err)
		}
		n.Clock.Add(time.Hour) // a failed unlock is repeated in the next cycle
		var s status.Status
		alive, err := n.survives(ctx, func(ctx context.Context, a *agent.Agent) (err error) {
			s, err = a.Cycle(ctx, source.PollNone)
			return err
		})
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

// Eight agents restart their etcd under one lock, of a real server over a real etcd, concurrently, in ten rounds: a lock
// server, and a Lease of a real API server. In every second round agents are killed at random, and in one of either
// kind etcd's leader and the API server. No two agents
// are in the critical section at once, all finish, and no lock is left. `make soak` sets IUA_ROUNDS, the number of
// rounds.
func TestEightAgentsTakeTurns(t *testing.T) {
	t.Parallel()
	t.Run("lock server", func(t *testing.T) {
		t.Parallel()
		cluster := story.StartEtcd(t)
		url := lockServer(t, cluster.Store())
		takeTurns(t, fleet.Lock{Target: fleet.Target{Server: url, Group: "masters"}}, func(id string) fleet.Locker { return lockOf(t, url, id) }, func() {
			leader := cluster.Leader()
			leader.Kill()
			cluster.Start(leader)
		})
	})
	if !rig.Soak {
		return
	}
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		cluster := story.StartEtcd(t)
		api := story.StartAPIServer(t, cluster)
		takeTurns(t, fleet.Lock{Target: fleet.Target{Lease: leaseName}}, func(id string) fleet.Locker { return leaseOf(t, api, id) }, func() {
			leader := cluster.Leader()
			api.Kill()
			leader.Kill()
			cluster.Start(leader)
			api.Start()
		})
	})
}

// takeTurns runs the rounds with a lock, which is each node's. disturb restarts the servers.
func takeTurns(t *testing.T, lock fleet.Lock, lockOf func(id string) fleet.Locker, disturb func()) {
	t.Helper()
	rounds := story.SoakRounds(t, 10)
	watch := &turns{t: t, in: map[string]bool{}}
	var nodes []*turnNode
	for i := range turnNodes {
		w := agenttest.NewWorld()
		id := fleetlock.ID(fmt.Sprintf("node %d", i))
		n := &turnNode{World: w, id: id, lock: lockOf(id), turns: watch, random: rand.New(rand.NewPCG(1, uint64(i)))}
		w.Policy.Lock = lock
		w.Policy.Lock.Pods, w.Policy.Lock.ID = fleet.LockControlPlane, id
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
		if round%5 == 3 {
			disturb()
		}
		group.Wait()
		cancel()
		require.NoError(t, errors.Join(errs...), "round %d", round)
		require.Empty(t, watch.in, "round %d", round)
		require.Equal(t, 1, watch.most, "round %d: nodes that were in at once", round)
	}
	last, err := lockOf("last").Lock(t.Context())
	require.NoError(t, err, "no lock is left")
	assert.Len(t, last.Holders, 1)
	assert.GreaterOrEqual(t, watch.stops, turnNodes*rounds)
	assert.Greater(t, watch.kills, rounds)
	t.Logf("%d restarts, %d kills", watch.stops, watch.kills)
}
