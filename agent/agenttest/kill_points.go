// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// The points of an apply where a test may kill the daemon. There is a point before and after each call with side
// effects, and after each query that an apply waits for. Its label consists of a phase, the call, and the side, as in
// "roll back: save 2 before"; the number counts that call within the phase, from the second one on.
const (
	killAt  = "IUA_KILL_AT"  // the daemon kills itself at the point with this label
	killLog = "IUA_KILL_LOG" // a file to which the label of each reached point is appended, one per line
)

// The phases, derived from each saved record.
const (
	phaseStart    = "start"     // since the daemon's start: nothing is approved
	phaseApply    = "apply"     // an approval is saved
	phaseRollBack = "roll back" // an override is saved, and its pod does not run it yet
	phaseReport   = "report"    // neither any more
)

// polls is the number of counted queries of a kind in a phase: how often they are made depends on timing.
const polls = 2

// KillPoints puts the points around the ports of an agent.
func KillPoints(a *agent.Agent) {
	p := &points{at: os.Getenv(killAt), log: os.Getenv(killLog), phase: phaseStart, seen: map[string]int{}}
	Intercept(a, p)
	a.Recorder = turningRecorder{a.Recorder, p}
	// The number of observations caused by containerd's events depends on timing; with events the points would differ
	// between runs.
	a.Events = nil
}

// turningRecorder starts the phase of each saved record.
type turningRecorder struct {
	record.Recorder
	points *points
}

func (t turningRecorder) Save(ctx context.Context, r record.Record) error {
	t.points.turn(r)
	return t.Recorder.Save(ctx, r)
}

// points counts the calls of each phase.
type points struct {
	at, log string

	lock  sync.Mutex
	phase string
	seen  map[string]int
}

// turn starts a phase if it is a new one.
func (p *points) turn(r record.Record) {
	p.lock.Lock()
	defer p.lock.Unlock()
	next := phaseReport
	for _, o := range r.Overrides {
		if o.Pending {
			next = phaseRollBack
		}
	}
	switch {
	case next == phaseRollBack:
	case len(r.Approved) > 0:
		next = phaseApply
	case p.phase == phaseStart:
		next = phaseStart
	}
	if next != p.phase {
		p.phase, p.seen = next, map[string]int{}
	}
}

// Around wraps a call with side effects.
func (p *points) Around(call string, do func() error) error {
	name, _ := p.number(call)
	p.reach(name + " before")
	err := do()
	p.reach(name + " after")
	return err
}

// Asked is called after a query.
func (p *points) Asked(call string) {
	if name, n := p.number(call); n <= polls {
		p.reach(name)
	}
}

func (p *points) number(call string) (label string, n int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.seen[call]++
	n = p.seen[call]
	label = p.phase + ": " + call
	if n > 1 {
		label += fmt.Sprint(" ", n)
	}
	return label, n
}

// reach kills the program at the requested point: not even deferred calls run.
func (p *points) reach(label string) {
	if p.log != "" {
		if err := p.note(label); err != nil {
			panic(err)
		}
	}
	if label == p.at {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {} // until the signal arrives
	}
}

func (p *points) note(label string) error {
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteString(strings.ReplaceAll(label, "\n", " ") + "\n")
	return err
}

// Interceptor wraps the calls of an agent's ports.
type Interceptor interface {
	// Around makes a call with side effects.
	Around(call string, do func() error) error
	// Asked is called after a query.
	Asked(call string)
}

// Intercept wraps the ports of an agent with an Interceptor.
func Intercept(a *agent.Agent, i Interceptor) {
	a.Source = killSource{a.Source, i}
	a.Images = killImages{a.Images, i}
	a.Pods = killPods{a.Pods, i}
	a.Files = killFiles{a.Files, i}
	a.Announcer = killAnnouncer{a.Announcer, i}
	a.Recorder = killRecorder{a.Recorder, i}
	if a.LocalRegistry != nil {
		a.LocalRegistry.Store = killTable{a.LocalRegistry.Store, i}
	}
	if a.Readiness != nil {
		a.Readiness = killReadiness{a.Readiness, i}
	}
	if a.FleetLock != nil {
		a.FleetLock = killFleetLock{a.FleetLock, i}
	}
	if a.Inhibitor != nil {
		a.Inhibitor = killInhibitor{a.Inhibitor, i}
	}
}

// around makes a call with a result.
func around[T any](i Interceptor, call string, do func() (T, error)) (out T, err error) {
	err = i.Around(call, func() error {
		out, err = do()
		return err
	})
	return out, err
}

// The ports of an agent with an Interceptor. Calls that are not listed here are not intercepted.
type (
	killSource struct {
		source.Source
		points Interceptor
	}
	killImages struct {
		node.Images
		points Interceptor
	}
	killPods struct {
		node.Pods
		points Interceptor
	}
	killFiles struct {
		node.PodFiles
		points Interceptor
	}
	killAnnouncer struct {
		agent.Announcer
		points Interceptor
	}
	killRecorder struct {
		record.Recorder
		points Interceptor
	}
	killTable struct {
		localregistry.Store
		points Interceptor
	}
	killReadiness struct {
		apply.Readiness
		points Interceptor
	}
	killFleetLock struct {
		fleet.Locker
		points Interceptor
	}
	killInhibitor struct {
		apply.Inhibitor
		points Interceptor
	}
)

func (k killSource) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer k.points.Asked("resolve")
	return k.Source.Resolve(ctx, ref)
}

func (k killImages) Stage(ctx context.Context, r release.Release, t node.StageOptions) error {
	return k.points.Around("stage", func() error { return k.Images.Stage(ctx, r, t) })
}

func (k killImages) Pins(ctx context.Context, want []release.Pin) error {
	return k.points.Around("pins", func() error { return k.Images.Pins(ctx, want) })
}

func (k killImages) Prune(ctx context.Context, gone []node.HeldImage) error {
	return k.points.Around("prune", func() error { return k.Images.Prune(ctx, gone) })
}

func (k killImages) Name(ctx context.Context, p release.Pin) error {
	return k.points.Around("name", func() error { return k.Images.Name(ctx, p) })
}

func (k killImages) Restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	return k.points.Around("restore", func() error { return k.Images.Restore(ctx, was, d) })
}

func (k killPods) Containers(ctx context.Context) (static []node.Container, used []digest.Digest, err error) {
	defer k.points.Asked("containers")
	return k.Pods.Containers(ctx)
}

func (k killPods) Lists(ctx context.Context, name string) (digest.Digest, bool, error) {
	defer k.points.Asked("lists")
	return k.Pods.Lists(ctx, name)
}

func (k killPods) Stop(ctx context.Context, containerID string, grace time.Duration) error {
	return k.points.Around("stop", func() error { return k.Pods.Stop(ctx, containerID, grace) })
}

func (k killPods) Clear(ctx context.Context, sandboxID string) error {
	return k.points.Around("clear", func() error { return k.Pods.Clear(ctx, sandboxID) })
}

func (k killPods) SandboxReady(ctx context.Context, sandboxID string) (bool, error) {
	defer k.points.Asked("sandbox ready")
	return k.Pods.SandboxReady(ctx, sandboxID)
}

func (k killPods) Pull(ctx context.Context, ref release.Reference) (digest.Digest, error) {
	return around(k.points, "pull", func() (digest.Digest, error) { return k.Pods.Pull(ctx, ref) })
}

func (k killFiles) Write(ctx context.Context, was node.PodFile, data []byte) error {
	return k.points.Around("write", func() error { return k.PodFiles.Write(ctx, was, data) })
}

func (k killFiles) Remove(ctx context.Context, was node.PodFile) error {
	return k.points.Around("remove", func() error { return k.PodFiles.Remove(ctx, was) })
}

func (k killFiles) Keep(ctx context.Context, name string, data []byte) error {
	return k.points.Around("keep", func() error { return k.PodFiles.Keep(ctx, name, data) })
}

func (k killFiles) SetAside(ctx context.Context, was node.PodFile) error {
	return k.points.Around("set aside", func() error { return k.PodFiles.SetAside(ctx, was) })
}

func (k killFiles) PutBack(ctx context.Context) ([]string, error) {
	return around(k.points, "put back", func() ([]string, error) { return k.PodFiles.PutBack(ctx) })
}

func (k killAnnouncer) Announce(ctx context.Context, a status.Announcement) error {
	return k.points.Around("announce", func() error { return k.Announcer.Announce(ctx, a) })
}

func (k killRecorder) Save(ctx context.Context, r record.Record) error {
	return k.points.Around("save", func() error { return k.Recorder.Save(ctx, r) })
}

func (k killRecorder) Publish(ctx context.Context, s status.Status) error {
	return k.points.Around("publish", func() error { return k.Recorder.Publish(ctx, s) })
}

func (k killTable) Save(ctx context.Context, t localregistry.Table) error {
	return k.points.Around("table", func() error { return k.Store.Save(ctx, t) })
}

func (k killReadiness) Unready(ctx context.Context, pod apply.PodReadiness) (apply.Verdict, error) {
	defer k.points.Asked("ready")
	return k.Readiness.Unready(ctx, pod)
}

func (k killInhibitor) Inhibit(ctx context.Context, why string) (release func(), err error) {
	return around(k.points, "inhibit", func() (func(), error) { return k.Inhibitor.Inhibit(ctx, why) })
}

func (k killFleetLock) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	return around(k.points, "lock", func() (fleet.LockAnswer, error) { return k.Locker.Lock(ctx) })
}

func (k killFleetLock) Unlock(ctx context.Context) error {
	return k.points.Around("unlock", func() error { return k.Locker.Unlock(ctx) })
}
