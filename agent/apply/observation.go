// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
)

// podObservation is what CRI shows of a pod at one moment.
type podObservation struct {
	missing string // the first thing that is not as expected; empty: all is
	moved   string // a tag has moved on between the last look and the start, and something else was started
	before  bool   // which is what ran before: it may be of a pod manifest that was put back, and go again
	started bool   // the containers were started anew, or an init container runs or has failed
	starts  string // names the starts of the expected containers: another one is a restart
	ended   []ending
	// unchecked are the containers of which nobody could tell whether they are ready.
	unchecked []string
}

func (r *restart) observe(ctx context.Context, p plan.Apply) (podObservation, error) {
	containers, err := r.containers(ctx)
	if err != nil {
		return podObservation{}, err
	}
	s := podObservation{started: true}
	begun := false
	var starts strings.Builder
	for _, e := range initsFirst(p.Expect) {
		c := node.FindContainer(containers, e.Container)
		if s.missing == "" {
			s.missing = mismatch(c, e)
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
		s.missing, s.unchecked = r.unready(ctx, p, containers)
	}
	return s, nil
}

// took is what a container shows that was started anew.
func (s *podObservation) took(c node.Container, e plan.Expectation, p plan.Apply) {
	if isOther(c, e) && (s.moved == "" || s.before) {
		s.moved, s.before = fmt.Sprintf("%s has moved on: %s was started", e.Ref, c.Image), ranBefore(p, c, e)
	}
	if hasEnded(c, e) {
		s.ended = append(s.ended, ending{e.Container, c.ID, mismatch(&c, e)})
	}
}

// isOther reports whether a container runs what its tag must have named when it was started.
func isOther(c node.Container, e plan.Expectation) bool {
	return c.Running && !e.OnNode && e.Config != "" && c.Image != "" && !isImage(c, e)
}

// ranBefore reports whether a container has the image that ran well before.
func ranBefore(p plan.Apply, c node.Container, e plan.Expectation) bool {
	if p.Back == nil {
		return false
	}
	at, ok := plan.PinnedFor(*p.Back, e)
	return ok && isImage(c, plan.Expectation{Digest: at.Digest, Config: at.Config})
}

// hasEnded reports whether a container has ended that should not have.
func hasEnded(c node.Container, e plan.Expectation) bool {
	return !c.Running && !c.StartedAt.IsZero() && isImage(c, e) && (!e.Init || c.ExitCode != 0)
}

// initsFirst has what the others wait for in front.
func initsFirst(all []plan.Expectation) []plan.Expectation {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b plan.Expectation) int {
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

// mismatch tells what a container lacks to be what is expected; nothing: "".
func mismatch(c *node.Container, e plan.Expectation) string {
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

func isImage(c node.Container, e plan.Expectation) bool {
	if e.Config != "" && c.Image == e.Config {
		return true
	}
	return slices.Contains(c.Digests, e.Digest)
}
