// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
)

// The points of an apply where a test may kill the daemon. A point lies before and after each call that changes
// something, and after each that an apply waits for. Its label is a phase, what is called, and where, as in
// "roll back: save 2 before"; the number counts that call in the phase, from the second one on.
const (
	killAt  = "IUA_KILL_AT"  // the daemon kills itself at the point with this label
	killLog = "IUA_KILL_LOG" // a file that gets the label of each point it comes to, one a line
)

// The phases follow from what the record says when it is saved.
const (
	phaseStart    = "start"     // since the daemon's start: nothing is approved
	phaseApply    = "apply"     // an approval is kept
	phaseRollBack = "roll back" // an override is kept that its pod is still to be brought to
	phaseReport   = "report"    // neither any more
)

// polls are how many calls of a kind count that only ask, in a phase: how often they are made is a matter of time.
const polls = 2

// KillPoints puts the points around the ports of an agent.
func KillPoints(a *agent.Agent) {
	p := &points{at: os.Getenv(killAt), log: os.Getenv(killLog), phase: phaseStart, seen: map[string]int{}}
	a.Source = killSource{a.Source, p}
	a.Images = killImages{a.Images, p}
	a.Pods = killPods{a.Pods, p}
	a.Files = killFiles{a.Files, p}
	a.Announcer = killAnnouncer{a.Announcer, p}
	a.Recorder = killRecorder{a.Recorder, p}
	// How many observations containerd's events cause is a matter of time; with them no run would come to the points
	// of the one before it.
	a.Events = nil
	if a.OwnHost != nil {
		a.OwnHost.Store = killTable{a.OwnHost.Store, p}
	}
	if a.Readiness != nil {
		a.Readiness = killReadiness{a.Readiness, p}
	}
	if a.FleetLock != nil {
		a.FleetLock = killFleetLock{a.FleetLock, p}
	}
	if a.Inhibitor != nil {
		a.Inhibitor = killInhibitor{a.Inhibitor, p}
	}
}

// points counts the calls of each phase.
type points struct {
	at, log string

	lock  sync.Mutex
	phase string
	seen  map[string]int
}

// turn begins a phase, if it is another one.
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

// around makes a call that changes something.
func (p *points) around(call string, do func() error) error {
	name, _ := p.number(call)
	p.reach(name + " before")
	err := do()
	p.reach(name + " after")
	return err
}

// asked comes after a call that only asks.
func (p *points) asked(call string) {
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

// reach ends the program at the point that was asked for: not even deferred calls run.
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
		select {} // the signal is on its way
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
