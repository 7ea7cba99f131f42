// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A powerCut ends the agent at a call with side effects, before or right after its effect. Calls while the agent
// unwinds have no effect.
type powerCut struct {
	at, calls int
	after     bool
	full      bool // the disk is full, for this call only
	dead      bool
	where     string
}

// errCut is the error returned by the ports of a dead agent, and its panic value.
var errCut = errors.New("power cut")

// cutCalls are the calls at which the power is cut: they change what the next start finds.
var cutCalls = []string{
	"write", "keep", "set aside", "put back", "stop", "clear", "name", "restore", "pins", "lock", "unlock", "save", "table",
}

// Asked panics if a dead agent asks its runtime.
func (c *powerCut) Asked(call string) {
	if c.dead && call == "containers" {
		panic(errCut)
	}
}

// Around makes a call, and cuts the power before or after it.
func (c *powerCut) Around(what string, do func() error) error {
	if !slices.Contains(cutCalls, what) {
		return do()
	}
	if c.dead {
		return errCut
	}
	c.calls++
	here := c.calls == c.at
	if here && c.full {
		c.where = "full at " + what
		return errFull
	}
	if here && !c.after {
		return c.cut("before", what)
	}
	err := do()
	if here {
		return c.cut("after", what)
	}
	return err
}

// cut ends the agent. A stop only returns an error: it runs in a goroutine of its own, whose panic nothing recovers. The
// next question to the runtime panics.
func (c *powerCut) cut(when, what string) error {
	c.dead, c.where = true, when+" "+what
	if what == "stop" {
		return errCut
	}
	panic(errCut)
}

var errFull = errors.New("no space left on device")

// dies runs do until the power is cut; it returns false if do ended before.
func (w *world) dies(cut *powerCut, do func(*agent.Agent)) (died bool) {
	w.t.Helper()
	a := w.Agent()
	agenttest.Intercept(a, cut)
	defer func() {
		if r := recover(); r != nil {
			if r != any(errCut) {
				panic(r)
			}
			died = true
		}
	}()
	do(a)
	return cut.dead || cut.full && cut.calls >= cut.at
}

// Whenever the power is cut or a write finds the disk full, after the next start the pod runs the approved release or
// the last known good one, and nothing is half done.
func TestPowerCutAtEachCall(t *testing.T) {
	for name, c := range map[string]struct {
		rev  int
		bad  bool
		lost bool // the registry goes away as soon as the pod is stopped
		hand bool // rolled back by a person
		at   localregistry.Position
		lock bool // under the fleet lock
	}{
		"rebuild":                         {rev: 1},
		"revision":                        {rev: 2},
		"rebuild that does not come up":   {rev: 1, bad: true},
		"revision that does not come up":  {rev: 2, bad: true},
		"rebuild and no registry":         {rev: 1, lost: true},
		"revision and no registry":        {rev: 2, lost: true},
		"rebuild rolled back by a person": {rev: 1, hand: true},

		"rebuild, gate":                         {rev: 1, at: localregistry.Gate},
		"revision, gate":                        {rev: 2, at: localregistry.Gate},
		"rebuild that does not come up, gate":   {rev: 1, bad: true, at: localregistry.Gate},
		"rebuild rolled back by a person, gate": {rev: 1, hand: true, at: localregistry.Gate},
		"rebuild and no registry, fallback":     {rev: 1, lost: true, at: localregistry.Fallback},
		"revision and no registry, fallback":    {rev: 2, lost: true, at: localregistry.Fallback},

		"revision under the lock":                        {rev: 2, lock: true},
		"revision under the lock, that does not come up": {rev: 2, bad: true, lock: true},
		"rolled back by a person under the lock":         {rev: 1, hand: true, lock: true},
	} {
		for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
			run(t, name+"/"+when, func(t *testing.T) {
				for at := 1; ; at++ {
					cut := &powerCut{at: at, after: how.after, full: how.full}
					if !cutOnce(t, cut, c.rev, c.bad, c.lost, c.hand, c.lock, c.at) {
						assert.Greater(t, at, 5)
						return
					}
				}
			})
		}
	}
}

// neverAhead asserts for each saved table that it names a release only after its approval, and no denied one.
func (w *world) neverAhead(unapproved release.Release) {
	w.LocalRegistry.OnSave = func(t localregistry.Table) error {
		rec, err := w.Disk.Load(w.t.Context())
		require.NoError(w.t, err)
		for _, e := range t.Entries {
			d := digest.Digest(e.Digest)
			_, denied := rec.Denies(release.Release{Repository: velum, Digest: d})
			require.False(w.t, denied, "%v is denied", e)
			good := rec.Good[record.GoodKey("velum.yaml", "velum")].Running
			require.True(w.t, d != unapproved.Digest || len(rec.Approved) > 0 || good == d, "%v is not approved", e)
		}
		return nil
	}
}

func cutOnce(t *testing.T, cut *powerCut, rev int, bad, lost, hand, lock bool, at localregistry.Position) bool {
	w := newWorld(t)
	if at != localregistry.Off {
		w.UseLocalRegistry(suse, at)
	}
	if lock {
		w.Fleet = &agenttest.Fleet{}
		w.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
	}
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	second := w.Registry.Release(velum, "4.0.0", rev, "1.2")
	if bad {
		w.Node.Crash(second.Digest, true)
	}
	if at != localregistry.Off {
		w.neverAhead(second)
	}
	w.check()
	if hand {
		w.apply()
	}
	if lost {
		w.Node.OnStop = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
		w.Node.OnAside = func(string) error { w.Registry.Down(agenttest.ErrRefused); return nil }
	}
	if lock { // nothing stops without the lock
		w.Node.OnStop = func(string) error { require.NotEmpty(t, w.Fleet.Holders(), cut.where); return nil }
		w.Node.OnAside = w.Node.OnStop
	}
	died := w.dies(cut, func(a *agent.Agent) {
		if hand {
			_, _, _ = a.Rollback(t.Context(), plan.Named("velum"))
			return
		}
		_, _, _ = a.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	})
	if !died {
		return false
	}
	if !lock {
		w.Node.OnStop, w.Node.OnAside = nil, nil
	}
	w.restart()
	s := w.observe()
	for range 2 {
		w.Clock.Add(10 * time.Minute)
		w.Node.Sync()
		s = w.observe()
	}
	here := fmt.Sprintf("call %d: %s", cut.at, cut.where)
	if lost { // a stopped pod waits for its pull
		w.Registry.Down(nil)
		w.Node.Sync()
		s = w.check()
	}
	c, ok := w.Node.Container("velum.yaml", "velum")
	require.True(t, ok, "%s: velum is not there: %s", here, s.Reason)
	other, ok := w.Node.Container("velum.yaml", "db")
	require.True(t, ok, "%s: db is not there: %s", here, s.Reason)
	require.True(t, c.Running && other.Running, here)
	require.Equal(t, db.Digest, other.Digests[0], here)
	require.Empty(t, w.Node.Aside(), here)
	require.NotContains(t, w.Disk.JSON(), `"pending"`, here)
	plan, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err, here)
	require.Empty(t, plan.Steps, here)
	if lock {
		require.Empty(t, w.Fleet.Holders(), "%s: the lock is given back: %s", here, s.Reason)
		require.True(t, w.record().Lock.State.IsIdle(), here)
	}
	switch {
	case bad || hand:
		if c.Digests[0] != first.Digest || image(s, "velum.yaml", "velum").Offered != nil {
			// calls before the first change
			before := 6
			if hand {
				before += 2 // a name before the request is saved, and the save of its begin
			}
			if lock {
				before += 3 // a save, the lock, and a save
			}
			require.Less(t, cut.at, before, here)
			return true
		}
		require.Equal(t, first.Digest, c.Digests[0], here)
	case c.Digests[0] == first.Digest && cut.full && lost:
		// Neither registry nor rescue: the pod did not start and was rolled back.
		if image(s, "velum.yaml", "velum").Offered == nil {
			require.Contains(t, w.Disk.JSON(), `"denied"`, here)
		}
	case c.Digests[0] == first.Digest:
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "%s: it is offered again: %s", here, s.Reason)
	default:
		require.Equal(t, second.Digest, c.Digests[0], here)
		require.Equal(t, status.StateCurrent, s.State, "%s: %s", here, s.Reason)
		require.Nil(t, image(s, "velum.yaml", "velum").Offered, here)
		require.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastKnownGood.Digest, here)
	}
	return true
}
