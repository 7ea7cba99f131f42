// SPDX-License-Identifier: Apache-2.0

// Package agenttest supports tests of the agent: a whole node in memory, and conformance tests of the ports.
//
// # Fakes
//
// Registry publishes releases under their three tags and counts its requests. Node is a node: an image store, a
// container runtime with a small kubelet that restarts containers and pulls floating tags, and the directories of pod
// manifests. Grain and Disk are the announcer and the record, LocalRegistry the table of the node's local registry.
// World combines them and creates agents: each is a new process on the same node.
//
// # Conformance
//
// TestSource, TestImages, TestPods, TestRuntimeEvents, TestPodFiles, TestAnnouncer, TestRecorder and TestLocalRegistry
// test the behavior that package agent relies on. The fakes pass them, and so must every adapter: a fake that is more
// lenient than the real implementation hides bugs. A test whose function is nil is skipped.
package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// World is a node, its registry, its announcer and its disk.
type World struct {
	Registry      *Registry
	Node          *Node
	Grain         *Grain
	Disk          *Disk
	Clock         *Clock
	Policy        policy.Policy
	Verifier      stage.Verifier // nil: signatures are not verified
	Catalog       *Catalog       // nil: the registry's tags only
	Fleet         *Fleet         // nil: no lock
	LocalRegistry *LocalRegistry // nil: the node has none, see UseLocalRegistry
	Hosts         *Hosts
	Against       []status.Hold // the node's holds against a restart
	// AskedAgainst counts the queries of Against.
	AskedAgainst int
}

// NewWorld returns an empty node at noon of 1 May 2026.
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

// Agent starts a new agent on the node, which knows of earlier agents only what is on disk.
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
	if w.LocalRegistry != nil {
		a.LocalRegistry = &localregistry.Keeper{
			Store: w.LocalRegistry, Hosts: w.Hosts, Load: w.LocalRegistry.Load,
			Ask: func(context.Context, localregistry.Entry) error { return w.LocalRegistry.Down },
		}
	}
	return a
}

// UseLocalRegistry gives the node a local registry, in hosts.toml of a registry.
func (w *World) UseLocalRegistry(registry string, p localregistry.Position) {
	if w.LocalRegistry == nil {
		w.LocalRegistry, w.Hosts = &LocalRegistry{}, &Hosts{}
		w.Node.localRegistry = &localRegistry{w.LocalRegistry, w.Hosts}
	}
	w.Hosts.SetPosition(registry, p)
}

// against is an agent.Preconditions set by the test.
type against struct{ world *World }

func (a against) Holds(context.Context) []status.Hold {
	a.world.AskedAgainst++
	return slices.Clone(a.world.Against)
}

// Clock is a clock set by a test.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock, forward or back.
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

// Announce implements agent.Announcer.
func (g *Grain) Announce(_ context.Context, a status.Announcement) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.fail != nil:
		return g.fail
	case g.busy != "":
		return fmt.Errorf("%w: %s", release.ErrHeld, g.busy)
	}
	if a.State != g.last.State || a.Reason != g.last.Reason || !reflect.DeepEqual(a.Updates, g.last.Updates) {
		g.wrote++
	}
	a.Updates = slices.Clone(a.Updates)
	g.last = a
	return nil
}

// Busy implements agent.Announcer.
func (g *Grain) Busy(context.Context) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy, g.fail
}

// SetBusy makes another operation own the node; "" ends it.
func (g *Grain) SetBusy(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = reason
}

// Fail makes every call fail; nil ends it.
func (g *Grain) Fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

// Writes counts the announcements that differed from the previous one.
func (g *Grain) Writes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrote
}

// Last returns the last announcement.
func (g *Grain) Last() status.Announcement {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// Disk is a record.Recorder in memory. It keeps JSON, as a disk does, so it shares nothing with the agent that wrote
// it.
type Disk struct {
	mu     sync.Mutex
	record []byte
	status []byte
	fail   error
	saves  int
}

var _ record.Recorder = (*Disk)(nil)

// Load implements record.Recorder.
func (d *Disk) Load(context.Context) (record.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r record.Record
	if d.fail != nil || d.record == nil {
		return r, d.fail
	}
	return r, json.Unmarshal(d.record, &r)
}

// Save implements record.Recorder.
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

// Publish implements record.Recorder.
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

// Lose deletes the record: the state directory was deleted.
func (d *Disk) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = nil
}

// Fail makes every call fail; nil ends it: the disk is full.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Saves counts the saves since the last call.
func (d *Disk) Saves() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.saves
	d.saves = 0
	return n
}

// JSON returns the record on disk.
func (d *Disk) JSON() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.record)
}
