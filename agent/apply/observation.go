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
	mismatch string // the first difference from what is expected; empty: none
	tagMoved string // a container started another image, because its tag was moved; empty: none did
	ranWell  bool   // that image ran well before: kubelet may have started the old pod manifest once more
	started  bool   // the containers are new, or an init container runs or has failed
	starts   string // the ids of the expected containers; it changes with each restart
	ended    []endedContainer
	// unchecked are the containers whose readiness could not be checked.
	unchecked []string
}

// endedContainer is a container that has ended and should not have.
type endedContainer struct{ name, id, mismatch string }

// containers lists the containers of a pod.
func (x *Executor) containers(ctx context.Context, p plan.Apply) ([]node.Container, error) {
	inv, err := x.inventory(ctx)
	return inv.PodContainers(p.Namespace, p.Pod, p.Siblings), err
}

func (x *Executor) observe(ctx context.Context, p plan.Apply) (podObservation, error) {
	containers, err := x.containers(ctx, p)
	if err != nil {
		return podObservation{}, err
	}
	o := podObservation{started: true}
	initStarted := false
	var starts strings.Builder
	for _, e := range initsFirst(p.Expect) {
		c := node.FindContainer(containers, e.Container)
		if o.mismatch == "" {
			o.mismatch = mismatch(c, e)
		}
		isNew := c != nil && c.ID != e.Old
		// The containers after an init container that succeeded may still lack their images.
		initStarted = initStarted || e.Init && isNew && (c.Running || c.ExitCode != 0)
		o.started = o.started && (e.Init || isNew)
		if c != nil {
			fmt.Fprintf(&starts, "%s %s\n", e.Container, c.ID)
		}
		if isNew {
			o.addNew(*c, e, p)
		}
	}
	o.starts, o.started = starts.String(), o.started || initStarted
	if o.mismatch == "" {
		o.mismatch, o.unchecked, err = x.unready(ctx, p, containers)
	}
	return o, err
}

// addNew adds what a new container shows of its image and its end.
func (o *podObservation) addNew(c node.Container, e plan.Expectation, p plan.Apply) {
	isOther := c.Running && !e.OnNode && e.Config != "" && c.Image != "" && !isImage(c, e)
	if isOther && (o.tagMoved == "" || o.ranWell) {
		o.tagMoved, o.ranWell = fmt.Sprintf("%s has moved on: %s was started", e.Ref, c.Image), ranBefore(p, c, e)
	}
	if !c.Running && !c.StartedAt.IsZero() && isImage(c, e) && (!e.Init || c.ExitCode != 0) {
		o.ended = append(o.ended, endedContainer{e.Container, c.ID, mismatch(&c, e)})
	}
}

// ranBefore reports whether a container has the image of the rollback target.
func ranBefore(p plan.Apply, c node.Container, e plan.Expectation) bool {
	if p.Rollback == nil {
		return false
	}
	at, ok := plan.PinnedFor(*p.Rollback, e)
	return ok && isImage(c, plan.Expectation{Digest: at.Digest, Config: at.Config})
}

// initsFirst puts the init containers before the others, which wait for them.
func initsFirst(all []plan.Expectation) []plan.Expectation {
	var inits, others []plan.Expectation
	for _, e := range all {
		if e.Init {
			inits = append(inits, e)
		} else {
			others = append(others, e)
		}
	}
	return append(inits, others...)
}

// mismatch says how a container differs from what is expected; empty: it does not.
func mismatch(c *node.Container, e plan.Expectation) string {
	switch {
	case c == nil && e.Init && !e.Anew:
		return "" // kubelet removes ended init containers after a while
	case c == nil:
		return e.Container + " is not there"
	case e.Anew && c.ID == e.Old:
		return e.Container + " is still the old one"
	case !isImage(*c, e):
		return fmt.Sprintf("%s runs %s instead of %s", e.Container, c.Image, e.Config)
	case e.Init && !c.Running && c.ExitCode != 0: // a running one is a sidecar, or the others are not there yet
		return fmt.Sprintf("init container %s has not ended well (exit code %d)", e.Container, c.ExitCode)
	case !e.Init && !c.Running:
		return fmt.Sprintf("%s does not run (exit code %d)", e.Container, c.ExitCode)
	}
	return ""
}

func isImage(c node.Container, e plan.Expectation) bool {
	return e.Config != "" && c.Image == e.Config || slices.Contains(c.Digests, e.Digest)
}
