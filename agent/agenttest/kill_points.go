// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
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
