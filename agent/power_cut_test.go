// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A power cut ends the agent at one call that changes something, before it has an
// effect or right after. What it calls while it unwinds does nothing any more.
type powerCut struct {
	at, calls int
	after     bool
	full      bool // it is the disk that is full, at this call alone
	dead      bool
	where     string
}

// errCut is the error that a dead agent's ports return, and its panic value.
var errCut = errors.New("power cut")

func (c *powerCut) call(what string, do func() error) error {
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
		c.dead, c.where = true, "before "+what
		panic(errCut)
	}
	err := do()
	if here {
		c.dead, c.where = true, "after "+what
		panic(errCut)
	}
	return err
}

var errFull = errors.New("no space left on device")

type cutFiles struct {
	node.PodFiles
	cut *powerCut
}

func (f cutFiles) Write(ctx context.Context, was node.PodFile, data []byte) error {
	return f.cut.call("write", func() error { return f.PodFiles.Write(ctx, was, data) })
}

func (f cutFiles) SetAside(ctx context.Context, was node.PodFile) error {
	return f.cut.call("set aside", func() error { return f.PodFiles.SetAside(ctx, was) })
}

func (f cutFiles) PutBack(ctx context.Context) (names []string, err error) {
	err = f.cut.call("put back", func() error { names, err = f.PodFiles.PutBack(ctx); return err })
	return names, err
}

func (f cutFiles) Keep(ctx context.Context, name string, data []byte) error {
	return f.cut.call("keep", func() error { return f.PodFiles.Keep(ctx, name, data) })
}

type cutPods struct {
	node.Pods
	cut *powerCut
}

func (p cutPods) Stop(ctx context.Context, id string, grace time.Duration) error {
	return p.cut.call("stop", func() error { return p.Pods.Stop(ctx, id, grace) })
}

func (p cutPods) Clear(ctx context.Context, id string) error {
	return p.cut.call("clear", func() error { return p.Pods.Clear(ctx, id) })
}

func (p cutPods) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if p.cut.dead {
		return nil, nil, errCut
	}
	return p.Pods.Containers(ctx)
}

type cutImages struct {
	node.Images
	cut *powerCut
}

func (i cutImages) Name(ctx context.Context, p release.Pin) error {
	return i.cut.call("name", func() error { return i.Images.Name(ctx, p) })
}

func (i cutImages) Restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	return i.cut.call("restore", func() error { return i.Images.Restore(ctx, was, d) })
}

func (i cutImages) Pins(ctx context.Context, want []release.Pin) error {
	return i.cut.call("pins", func() error { return i.Images.Pins(ctx, want) })
}

type cutFleet struct {
	fleet.Locker
	cut *powerCut
}

func (f cutFleet) Lock(ctx context.Context) (answer fleet.LockAnswer, err error) {
	err = f.cut.call("lock", func() error { answer, err = f.Locker.Lock(ctx); return err })
	return answer, err
}

func (f cutFleet) Unlock(ctx context.Context) error {
	return f.cut.call("unlock", func() error { return f.Locker.Unlock(ctx) })
}

type cutRecorder struct {
	record.Recorder
	cut *powerCut
}

func (r cutRecorder) Save(ctx context.Context, rec record.Record) error {
	return r.cut.call("save", func() error { return r.Recorder.Save(ctx, rec) })
}

type cutTable struct {
	ownhost.Store
	cut *powerCut
}

func (o cutTable) Save(ctx context.Context, t ownhost.Table) error {
	return o.cut.call("table", func() error { return o.Store.Save(ctx, t) })
}

// dies runs what an agent does until the power is cut; false: it ended before.
func (w *world) dies(cut *powerCut, do func(*agent.Agent)) (died bool) {
	w.t.Helper()
	a := w.Agent()
	a.Files, a.Pods = cutFiles{w.Node, cut}, cutPods{w.Node, cut}
	a.Images, a.Recorder = cutImages{w.Node, cut}, cutRecorder{w.Disk, cut}
	if a.OwnHost != nil {
		a.OwnHost.Store = cutTable{w.OwnHost, cut}
	}
	if w.Fleet != nil {
		a.FleetLock = cutFleet{a.FleetLock, cut}
	}
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

// Whenever the power is cut, or a write finds the disk full, the next start ends with the pod on what was approved
// or on what ran well before, and nothing half done.
func TestPowerCutAtEachCall(t *testing.T) {
	for name, c := range map[string]struct {
		rev  int
		bad  bool
		lost bool // the registry goes away as soon as the pod is touched
		hand bool // rolled back by hand
		at   ownhost.Position
		lock bool // under the lock of the fleet
	}{
		"rebuild":                         {rev: 1},
		"revision":                        {rev: 2},
		"rebuild that does not come up":   {rev: 1, bad: true},
		"revision that does not come up":  {rev: 2, bad: true},
		"rebuild and no registry":         {rev: 1, lost: true},
		"revision and no registry":        {rev: 2, lost: true},
		"rebuild rolled back by a person": {rev: 1, hand: true},

		"rebuild, gate":                         {rev: 1, at: ownhost.Gate},
		"revision, gate":                        {rev: 2, at: ownhost.Gate},
		"rebuild that does not come up, gate":   {rev: 1, bad: true, at: ownhost.Gate},
		"rebuild rolled back by a person, gate": {rev: 1, hand: true, at: ownhost.Gate},
		"rebuild and no registry, fallback":     {rev: 1, lost: true, at: ownhost.Fallback},
		"revision and no registry, fallback":    {rev: 2, lost: true, at: ownhost.Fallback},

		"revision under the lock":                        {rev: 2, lock: true},
		"revision under the lock, that does not come up": {rev: 2, bad: true, lock: true},
		"rolled back by a person under the lock":         {rev: 1, hand: true, lock: true},
	} {
		for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
			t.Run(name+"/"+when, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					for at := 1; ; at++ {
						cut := &powerCut{at: at, after: how.after, full: how.full}
						if !cutOnce(t, cut, c.rev, c.bad, c.lost, c.hand, c.lock, c.at) {
							assert.Greater(t, at, 5)
							return
						}
					}
				})
			})
		}
	}
}

// neverAhead asserts with each saved table that it names a release only after its approval, and
// none that is denied.
func (w *world) neverAhead(unapproved release.Release) {
	w.OwnHost.OnSave = func(t ownhost.Table) error {
		rec, err := w.Disk.Load(w.t.Context())
		require.NoError(w.t, err)
		for _, e := range t.Entries {
			_, denied := rec.Denies(release.Release{Repository: velum, Digest: e.Digest})
			require.False(w.t, denied, "%v is denied", e)
			good := rec.Good[record.GoodKey("velum.yaml", "velum")].Running
			require.True(w.t, e.Digest != unapproved.Digest || len(rec.Approved) > 0 || good == e.Digest, "nobody has approved %v", e)
		}
		return nil
	}
}

func cutOnce(t *testing.T, cut *powerCut, rev int, bad, lost, hand, lock bool, at ownhost.Position) bool {
	w := newWorld(t)
	if at != ownhost.Off {
		w.UseOwnHost(suse, at)
	}
	if lock {
		w.Fleet = &agenttest.Fleet{}
		w.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Server: "https://lock", Group: "g", ID: "me"}
	}
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	second := w.Registry.Release(velum, "4.0.0", rev, "1.2")
	if bad {
		w.Node.Crash(second.Digest, true)
	}
	if at != ownhost.Off {
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
	if lock { // nothing is stopped without the lock
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
	if lost { // a pod that was stopped waits for what it pulls
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
		require.NotContains(t, w.Disk.JSON(), `"lock"`, here)
	}
	switch {
	case bad || hand:
		if c.Digests[0] != first.Digest || image(s, "velum.yaml", "velum").Offered != nil {
			// it was cut before anything was done
			before := 6
			if lock {
				before += 3 // a save, the lock, and a save
			}
			require.Less(t, cut.at, before, here)
			return true
		}
		require.Equal(t, first.Digest, c.Digests[0], here)
	case c.Digests[0] == first.Digest && cut.full && lost:
		// Neither the registry nor the rescue: it did not start, and was rolled back.
		if image(s, "velum.yaml", "velum").Offered == nil {
			require.Contains(t, w.Disk.JSON(), `"denied"`, here)
		}
	case c.Digests[0] == first.Digest:
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "%s: it is offered again: %s", here, s.Reason)
	default:
		require.Equal(t, second.Digest, c.Digests[0], here)
		require.Equal(t, status.StateCurrent, s.State, "%s: %s", here, s.Reason)
		require.Nil(t, image(s, "velum.yaml", "velum").Offered, here)
		require.Equal(t, second.Digest, image(s, "velum.yaml", "velum").LastGood.Digest, here)
		if image(s, "velum.yaml", "velum").Adopted {
			t.Log("ADOPTED", here)
		}
	}
	return true
}
