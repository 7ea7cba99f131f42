// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
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
	limit := a.Policy.ApplyTimeout + a.Policy.Settle
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()
	v := vigil{began: time.Now(), since: time.Now()}
	for {
		// Not under the deadline: a look that it cut short would tell nothing.
		is, err := a.sight(ctx, p)
		if ctx.Err() != nil {
			return fmt.Errorf("pod %s: %w", p.Pod, ctx.Err())
		}
		v.see(is, err)
		switch {
		case err != nil:
		case is.moved != "" && (!is.before || step.Do == StepProve): // which has put nothing back
			return a.movedOn(is)
		case is.missing == "" && time.Since(v.since) >= a.Policy.Settle:
			a.unchecked(step.File, is.unchecked)
			a.watch.up = v.since
			return nil
		case v.loops() != "":
			return &notProved{reason: fmt.Sprintf("pod %s: %s", p.Pod, v.loops())}
		default:
			if rescued := help.look(ctx, is, v.began); rescued != nil {
				p.Expect = rescued
			}
		}
		a.tell(Progress{Reference: p.Pod, Phase: phaseOf(is)})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		switch {
		case time.Since(v.began) < limit:
		case is.moved != "":
			return a.movedOn(is)
		default:
			return unproved(p.Pod, a.Policy.ApplyTimeout, is, v.fell, err)
		}
	}
}

// movedOn ends a proof where kubelet has started something else.
func (a *Agent) movedOn(is sight) error {
	a.moved = true
	return fmt.Errorf("%w: %s", ErrHeld, is.moved)
}

// vigil is what a proof has seen.
type vigil struct {
	began time.Time
	since time.Time // the pod has been as it is now
	was   sight     // the last one
	fell  int       // how often it was all right, and was so no more
	ends  []ending
}

// ending is a container that has ended and should not have, and what it lacks for that.
type ending struct{ container, id, why string }

// endsTooOften is how often a container ends until its pod is given up before the
// deadline. kubelet starts it anew at once, then after pauses of 10, 20, 40 s: so it has
// had more than a minute to find what it waits for. To wait on would only prolong the
// time that the pod is down.
const endsTooOften = 5

// loops tells of a container that ends again and again; none does: "".
func (v *vigil) loops() string {
	count := map[string]int{}
	for _, e := range v.ends {
		if count[e.container]++; count[e.container] == endsTooOften {
			return fmt.Sprintf("%s has ended %d times: %s", e.container, endsTooOften, e.why)
		}
	}
	return ""
}

func (v *vigil) see(is sight, err error) {
	if err != nil {
		v.since = time.Now() // nobody knows what was missed
		return
	}
	for _, e := range is.ended {
		if !slices.Contains(v.ends, e) {
			v.ends = append(v.ends, e)
		}
	}
	if is.missing != "" || is.starts != v.was.starts {
		v.since = time.Now()
		if v.was.starts != "" && v.was.missing == "" {
			v.fell++
		}
	}
	v.was = is
}

func phaseOf(s sight) string {
	if s.missing == "" && s.starts != "" {
		return phaseProving
	}
	return phaseWaiting
}

// The phases of an apply, see Progress.
const (
	phaseChanging  = "changing"
	phaseReturning = "returning"
	phaseWaiting   = "waiting"
	phaseProving   = "proving"
)

// notProved is the end of a proof that did not succeed.
type notProved struct {
	reason string
	unseen bool // nobody could look, so nothing is known of the pod
}

func (n *notProved) Error() string { return n.reason }

// isDown reports whether an error is that a pod was seen not to come up.
func isDown(err error) bool {
	n, is := errors.AsType[*notProved](err)
	return is && !n.unseen
}

func isUnseen(err error) bool {
	n, is := errors.AsType[*notProved](err)
	return is && n.unseen
}

// unproved says what the proof waited for when its time was over.
func unproved(pod string, after time.Duration, last sight, fell int, err error) error {
	why := last.missing
	switch {
	case err != nil:
		why = err.Error()
	case why == "" && fell == 0:
		why = "it came up too late to be proved"
	case why == "":
		why = fmt.Sprintf("it does not stay up (it fell %d times)", fell)
	}
	return &notProved{fmt.Sprintf("pod %s: not running after %s: %s", pod, after, why), err != nil}
}

// sight is what CRI shows of a pod at one moment.
type sight struct {
	missing string // the first thing that is not as expected; empty: all is
	moved   string // a tag has moved on between the last look and the start, and something else was started
	before  bool   // which is what ran before: it may be of a pod manifest that was put back, and go again
	started bool   // the containers were started anew, or an init container runs or has failed
	starts  string // names the starts of the expected containers: another one is a restart
	ended   []ending
	// unchecked are the containers of which nobody could tell whether they are ready.
	unchecked []string
}

func (a *Agent) sight(ctx context.Context, p Apply) (sight, error) {
	all, _, err := a.Pods.Containers(ctx)
	if err != nil {
		return sight{}, err
	}
	inv := Inventory{Containers: all, NodeName: a.Policy.NodeName}
	containers := inv.podContainers(p.Namespace, p.Pod, p.Siblings)
	s := sight{started: true}
	begun := false
	var starts strings.Builder
	for _, e := range initsFirst(p.Expect) {
		c := container(containers, e.Container)
		if s.missing == "" {
			s.missing = lacks(c, e)
		}
		anew := c != nil && c.ID != e.Old
		// One that has ended well tells nothing of the others, whose registry may be away.
		begun = begun || e.Init && anew && (c.Running || c.ExitCode != 0)
		s.started = s.started && (e.Init || anew)
		if c != nil {
			fmt.Fprintf(&starts, "%s %s\n", e.Container, c.ID)
		}
		if anew {
			s.took(*c, e, p)
		}
	}
	s.starts, s.started = starts.String(), s.started || begun
	if s.missing == "" {
		s.missing, s.unchecked = a.unready(ctx, p, containers)
	}
	return s, nil
}

// took is what a container shows that was started anew.
func (s *sight) took(c Container, e Expectation, p Apply) {
	if isOther(c, e) && (s.moved == "" || s.before) {
		s.moved, s.before = fmt.Sprintf("%s has moved on: %s was started", e.Ref, c.Image), p.ran(c, e)
	}
	if hasEnded(c, e) {
		s.ended = append(s.ended, ending{e.Container, c.ID, lacks(&c, e)})
	}
}

// isOther reports whether a container runs what its tag must have named when it was started.
func isOther(c Container, e Expectation) bool {
	return c.Running && !e.OnNode && e.Config != "" && c.Image != "" && !isImage(c, e)
}

// ran reports whether a container has the image that ran well before.
func (p Apply) ran(c Container, e Expectation) bool {
	if p.Back == nil {
		return false
	}
	at, ok := p.Back.at(e)
	return ok && isImage(c, Expectation{Digest: at.Digest, Config: at.Config})
}

// hasEnded reports whether a container has ended that should not have.
func hasEnded(c Container, e Expectation) bool {
	return !c.Running && !c.StartedAt.IsZero() && isImage(c, e) && (!e.Init || c.ExitCode != 0)
}

// initsFirst has what the others wait for in front.
func initsFirst(all []Expectation) []Expectation {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b Expectation) int {
		switch {
		case a.Init == b.Init:
			return 0
		case a.Init:
			return -1
		}
		return 1
	})
	return out
}

// lacks tells what a container lacks to be what is expected; nothing: "".
func lacks(c *Container, e Expectation) string {
	switch {
	case c == nil && e.Init && !e.Anew:
		return "" // kubelet keeps one that has ended only so long
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
