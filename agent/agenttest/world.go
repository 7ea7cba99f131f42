// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// World is a node, its registry, its announcer and its disk.
type World struct {
	Registry *Registry
	Node     *Node
	Grain    *Grain
	Disk     *Disk
	Clock    *Clock
	Policy   policy.Policy
	Verifier stage.Verifier // nil: nobody verifies
	Catalog  *Catalog       // nil: the registry's tags alone
	Fleet    *Fleet         // nil: no lock
	OwnHost  *OwnHost       // nil: the node has none, see UseOwnHost
	Hosts    *Hosts
	Against  []status.Hold // what the node has against a restart
	// AskedAgainst counts the questions for it.
	AskedAgainst int
}

// NewWorld is an empty node on 1 May 2026, noon.
func NewWorld() *World {
	clock := &Clock{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	registry := NewRegistry()
	node := NewNode(registry)
	node.Now = clock.Now
	return &World{
		Registry: registry, Node: node, Grain: &Grain{}, Disk: &Disk{}, Clock: clock,
		Policy: policy.Policy{
			MaxParallelStages: 2, Prune: policy.Prune{Keep: 1},
			PullPolicy: "Always", ListEvery: 24 * time.Hour, ApplyTimeout: time.Minute,
		},
	}
}

// Agent starts a new agent on the node: what the one before it knew is what is
// on the disk.
func (w *World) Agent() *agent.Agent {
	a := &agent.Agent{
		Source: w.Registry, Images: w.Node, Pods: w.Node, Files: w.Node, Announcer: w.Grain, Recorder: w.Disk,
		Policy: w.Policy, Verifier: w.Verifier, Log: slog.New(slog.DiscardHandler), Now: w.Clock.Now, Version: "test",
		Preconditions: against{w},
	}
	if w.Fleet != nil {
		a.FleetLock = w.Fleet.Node(w.Policy.Lock.ID)
	}
	if w.Catalog != nil {
		a.Catalog = w.Catalog
	}
	if w.OwnHost != nil {
		a.OwnHost = &ownhost.Keeper{
			Store: w.OwnHost, Hosts: w.Hosts, Load: func() (ownhost.Table, error) { return w.OwnHost.Table(), nil },
			Ask: func(context.Context, ownhost.Entry) error { return w.OwnHost.Down },
		}
	}
	return a
}

// UseOwnHost gives the node an own host, and puts it among the hosts of a registry.
func (w *World) UseOwnHost(registry string, p ownhost.Position) {
	if w.OwnHost == nil {
		w.OwnHost, w.Hosts = &OwnHost{}, &Hosts{}
		w.Node.ownHost = &ownHost{w.OwnHost, w.Hosts}
	}
	w.Hosts.SetPosition(registry, p)
}

// against is an agent.Preconditions as the test wants it.
type against struct{ world *World }

func (a against) Holds(context.Context) []status.Hold {
	a.world.AskedAgainst++
	return slices.Clone(a.world.Against)
}

// Clock is a clock that a test sets.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock, also back.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Grain is an agent.Announcer in memory.
type Grain struct {
	mu    sync.Mutex
	last  status.Announcement
	busy  string
	fail  error
	wrote int
}

var _ agent.Announcer = (*Grain)(nil)

// Announce answers as agent.Announcer.
func (g *Grain) Announce(_ context.Context, a status.Announcement) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.fail != nil:
		return g.fail
	case g.busy != "":
		return fmt.Errorf("%w: %s", release.ErrHeld, g.busy)
	}
	if a.State != g.last.State || a.Reason != g.last.Reason || !slices.Equal(a.Updates, g.last.Updates) {
		g.wrote++
	}
	a.Updates = slices.Clone(a.Updates)
	g.last = a
	return nil
}

// Busy answers as agent.Announcer.
func (g *Grain) Busy(context.Context) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy, g.fail
}

// SetBusy has another operation own the node; "" ends it.
func (g *Grain) SetBusy(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = reason
}

// Fail makes every call fail, until nil.
func (g *Grain) Fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

// Writes counts the announcements that differed from the one before.
func (g *Grain) Writes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrote
}

// Last is what was announced last.
func (g *Grain) Last() status.Announcement {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// Disk is an record.Recorder in memory. It keeps JSON, as a disk does: nothing
// is shared with the agent that wrote it.
type Disk struct {
	mu     sync.Mutex
	record []byte
	status []byte
	fail   error
	saves  int
}

var _ record.Recorder = (*Disk)(nil)

// Load answers as record.Recorder.
func (d *Disk) Load(context.Context) (record.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r record.Record
	if d.fail != nil || d.record == nil {
		return r, d.fail
	}
	return r, json.Unmarshal(d.record, &r)
}

// Save answers as record.Recorder.
func (d *Disk) Save(ctx context.Context, r record.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.fail != nil {
		return d.fail
	}
	d.saves++
	r.Version = record.RecordVersion
	var err error
	d.record, err = json.Marshal(r)
	return err
}

// Publish answers as record.Recorder.
func (d *Disk) Publish(_ context.Context, s status.Status) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	var err error
	d.status, err = json.Marshal(s)
	return err
}

// Lose takes the record away: somebody deleted the state directory.
func (d *Disk) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = nil
}

// Fail makes every call fail, until nil: the disk is full.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Saves counts how often the record was written since the last call.
func (d *Disk) Saves() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.saves
	d.saves = 0
	return n
}

// JSON is the record as it stands on the disk.
func (d *Disk) JSON() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.record)
}
