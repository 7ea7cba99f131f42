// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// proofInterval is how often CRI is asked whether the pod has come up: often
// enough for a person who waits, and nothing against kubelet's own relist each
// second.
const proofInterval = 500 * time.Millisecond

// prove waits until CRI shows each container on its digest, and it stays so for
// the settle time without a restart: a bad image may well come up, and fall. What
// falls begins anew, until the deadline. help looks after a pod that does not
// start; nil: nobody does.
func (a *Agent) prove(ctx context.Context, step Step, help *rescue) error {
	p := step.Apply
	ctx, cancel := context.WithTimeoutCause(ctx, a.Policy.ApplyTimeout+a.Policy.Settle,
		fmt.Errorf("not running after %s", a.Policy.ApplyTimeout))
	defer cancel()
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()
	since := time.Now() // the pod has been as it is now
	var was, is sight
	var err error
	fell, began := 0, time.Now()
	for {
		now, failed := a.sight(ctx, p)
		if ctx.Err() != nil { // that look was cut short, and tells nothing
			return unproved(ctx, p.Pod, is, fell, err)
		}
		is, err = now, failed
		switch {
		case err != nil, is.missing != "", is.starts != was.starts:
			since = time.Now()
			if err == nil && was.starts != "" && was.missing == "" {
				fell++
			}
		}
		if err == nil {
			was = is
			if is.missing == "" && time.Since(since) >= a.Policy.Settle {
				a.unchecked(step.File, is.unchecked)
				return nil
			}
			help.look(ctx, is, began)
		}
		a.tell(Progress{Reference: p.Pod, Phase: phaseOf(is)})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func phaseOf(s sight) string {
	if s.missing == "" && s.starts != "" {
		return phaseProving
	}
	return phaseWaiting
}

// The phases of an apply, see Progress.
const (
	phaseWaiting = "waiting"
	phaseProving = "proving"
)

// unproved says what the proof waited for when its time was over.
func unproved(ctx context.Context, pod string, last sight, fell int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("pod %s: %w: %w", pod, context.Cause(ctx), err)
	case last.missing == "" && fell == 0:
		return fmt.Errorf("pod %s: %w: it came up too late to be proved", pod, context.Cause(ctx))
	case last.missing == "":
		return fmt.Errorf("pod %s: %w: it does not stay up (it fell %d times)", pod, context.Cause(ctx), fell)
	default:
		return fmt.Errorf("pod %s: %w: %s", pod, context.Cause(ctx), last.missing)
	}
}

// sight is what CRI shows of a pod at one moment.
type sight struct {
	missing string // the first thing that is not as expected; empty: all is
	started bool   // the containers were started anew, or an init container was, whatever became of it
	starts  string // names the starts of the expected containers: another one is a restart
	// unchecked are the containers of which nobody could tell whether they are ready.
	unchecked []string
}

func (a *Agent) sight(ctx context.Context, p Apply) (sight, error) {
	all, _, err := a.Pods.Containers(ctx)
	if err != nil {
		return sight{}, err
	}
	inv := Inventory{Containers: all}
	containers := inv.podContainers(p.Namespace, p.Pod, p.Siblings)
	s := sight{started: true}
	begun := false
	var starts strings.Builder
	for _, e := range p.Expect {
		c := container(containers, e.Container)
		if s.missing == "" {
			s.missing = lacks(c, e)
		}
		anew := c != nil && c.ID != e.Old
		begun = begun || e.Init && anew
		s.started = s.started && (e.Init || anew)
		if c != nil {
			fmt.Fprintf(&starts, "%s %s\n", e.Container, c.ID)
		}
	}
	s.starts, s.started = starts.String(), s.started || begun
	if s.missing == "" {
		s.missing, s.unchecked, err = a.unready(ctx, p, containers)
	}
	return s, err
}

// lacks tells what a container lacks to be what is expected; nothing: "".
func lacks(c *Container, e Expectation) string {
	switch {
	case c == nil:
		return e.Container + " is not there"
	case e.Anew && c.ID == e.Old:
		return e.Container + " is still the old one"
	case !isImage(*c, e):
		return fmt.Sprintf("%s runs %s instead of %s", e.Container, c.Image, e.Config)
	case e.Init && !c.Running && c.ExitCode != 0:
		// One that runs is under way, and the others wait for it, or it is a
		// sidecar, which never ends.
		return fmt.Sprintf("init container %s has not ended well (exit code %d)", e.Container, c.ExitCode)
	case !e.Init && !c.Running:
		return fmt.Sprintf("%s does not run (exit code %d)", e.Container, c.ExitCode)
	}
	return ""
}

func isImage(c Container, e Expectation) bool {
	if e.Config != "" && c.Image == e.Config {
		return true
	}
	return slices.Contains(c.Digests, e.Digest)
}
