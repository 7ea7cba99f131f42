// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
)

// podObservation is the state of a pod in CRI at one moment.
type podObservation struct {
	mismatch string // the first difference from the expectation; "" if there is none
	// worse is the first one of a container that ran before the restart; "" if there is none. wellStarts are the ids of
	// these containers, as in starts.
	worse, wellStarts string
	tagMoved          string // a container that started another image, because its tag was moved; "" if there is none
	ranWell           bool   // that image is known good: kubelet may have started the old pod manifest once more
	started           bool   // the containers are new, or an init container runs or has failed
	starts            string // the ids of the expected containers; it changes with each restart
	ended             []endedContainer
	// failing is why the pod is not healthy yet, although it is ready; "" if nothing is known against it.
	// stillFailing is the same of the containers that did not run before.
	failing, stillFailing string
	// down is the first expected container that does not run; nil if each does.
	down *plan.Expectation
	// unchecked are the containers whose readiness could not be checked.
	unchecked []string
}

// endedContainer is a container that has ended unexpectedly.
type endedContainer struct{ name, id, mismatch string }

// containers lists the containers of a pod.
func (x *Executor) containers(ctx context.Context, p plan.Apply) ([]node.Container, error) {
	inv, err := x.inventory(ctx)
	return inv.ByPod(p.Siblings).Containers(p.Namespace, p.Pod), err
}

func (x *Executor) observe(ctx context.Context, p plan.Apply) (podObservation, error) {
	containers, err := x.containers(ctx, p)
	if err != nil {
		return podObservation{}, err
	}
	o := podObservation{started: true}
	initStarted := false
	for _, e := range initsFirst(p.Expect) {
		c := node.FindContainer(containers, e.Container)
		differs := mismatch(c, e, p, containers)
		o.add(e.Container, differs, p)
		o.count(c, e, p)
		if o.down == nil && differs != "" && (c == nil || !c.Running) {
			o.down = &e
		}
		isNew := c != nil && c.ID != e.Old
		// The containers after an init container that succeeded may still lack their images.
		initStarted = initStarted || e.Init && isNew && (c.Running || c.ExitCode != 0)
		o.started = o.started && (e.Init || isNew)
		if isNew {
			o.addNew(*c, e, p)
		}
	}
	o.started = o.started || initStarted
	if o.worse == "" {
		err = x.judge(ctx, &o, p, containers)
	}
	return o, err
}

// add adds the difference of a container from its expectation; "" if there is none.
func (o *podObservation) add(container, mismatch string, p plan.Apply) {
	o.mismatch = cmp.Or(o.mismatch, mismatch)
	if !slices.Contains(p.Broken, container) {
		o.worse = cmp.Or(o.worse, mismatch)
	}
}

// count adds the start of a container; a nil one has none.
func (o *podObservation) count(c *node.Container, e plan.Expectation, p plan.Apply) {
	if c == nil {
		return
	}
	o.starts += c.ID + "\n"
	if !slices.Contains(p.Broken, e.Container) {
		o.wellStarts += c.ID + "\n"
	}
}

// addNew adds the image and the end of a new container.
func (o *podObservation) addNew(c node.Container, e plan.Expectation, p plan.Apply) {
	isOther := c.Running && !e.OnNode && e.Config != "" && c.Image != "" && !isImage(c, e)
	if isOther && (o.tagMoved == "" || o.ranWell) {
		o.tagMoved, o.ranWell = fmt.Sprintf("%s has moved: %s was started", e.Ref, c.Image), ranBefore(p, c, e)
	}
	mayEnd := (e.Init || p.Once) && c.Succeeded()
	if !c.Running && !c.StartedAt.IsZero() && isImage(c, e) && !mayEnd {
		o.ended = append(o.ended, endedContainer{e.Container, c.ID, mismatch(&c, e, p, nil)})
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

// mismatch returns how a container differs from the expectation; "" if it does not. all are the containers of its pod.
func mismatch(c *node.Container, e plan.Expectation, p plan.Apply, all []node.Container) string {
	switch {
	case c == nil && e.Init && !e.Anew:
		return "" // kubelet removes ended init containers after a while
	case c == nil:
		return e.Container + " is missing"
	case !c.Running && (e.Anew && c.ID == e.Old || !isImage(*c, e)): // in its back-off, or while it pulls
		return fmt.Sprintf("kubelet has not started %s from %s", e.Container, cmp.Or(e.Name, e.Digest.String()))
	case e.Anew && c.ID == e.Old:
		return e.Container + " is still the old container"
	case !isImage(*c, e):
		return fmt.Sprintf("%s runs %s instead of %s", e.Container, c.Image, e.Config)
	case c.Running, c.Succeeded() && (e.Init || p.Once), e.Init && isDone(p, all):
		return "" // a running init container is a sidecar, or the others have not started
	case e.Init:
		return fmt.Sprintf("init container %s failed %s", e.Container, end(*c))
	default:
		return fmt.Sprintf("%s is not running %s", e.Container, end(*c))
	}
}

// end describes the end of a container as the runtime reports it. Its reasons Error and Completed only repeat the exit
// code.
func end(c node.Container) string {
	all := []string{fmt.Sprintf("(exit code %d)", c.ExitCode), c.Reason, c.Message}
	parts := slices.DeleteFunc(all, func(s string) bool {
		return s == "" || s == "Error" || s == "Completed"
	})
	return strings.Join(parts, ": ")
}

// isDone reports whether a pod has done its work: kubelet then ends its sidecars, whatever their exit code.
func isDone(p plan.Apply, all []node.Container) bool {
	return p.Once && !slices.ContainsFunc(p.Expect, func(e plan.Expectation) bool {
		c := node.FindContainer(all, e.Container)
		return !e.Init && (c == nil || !c.Succeeded())
	})
}

func isImage(c node.Container, e plan.Expectation) bool {
	return e.Config != "" && c.Image == e.Config || slices.Contains(c.Digests, e.Digest)
}
