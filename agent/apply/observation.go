// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/manifests"
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
	at, ok := p.Rollback.Images[e.Place()]
	return ok && isImage(c, plan.Expectation{Digest: at.Digest, Config: at.Config})
}

// initsFirst puts the init containers before the others, which wait for them.
func initsFirst(all []plan.Expectation) []plan.Expectation {
	isInit := func(e plan.Expectation) bool { return e.Init }
	isOther := func(e plan.Expectation) bool { return !e.Init }
	return append(slices.DeleteFunc(slices.Clone(all), isOther), slices.DeleteFunc(slices.Clone(all), isInit)...)
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

// Readiness reports whether containers are ready to serve, which CRI does not.
type Readiness interface {
	// Unready returns why the containers of a pod are not ready. An error means that none could be checked.
	Unready(ctx context.Context, pod PodReadiness) (Verdict, error)
	// Waiting lists the containers that kubelet does not start, with reasons; none if no kubelet is configured.
	Waiting(ctx context.Context) ([]node.Waiting, error)
}

// PodReadiness identifies a static pod for a readiness check.
type PodReadiness struct {
	Namespace  string
	Pod        string // with the node's suffix, as CRI has it: velum-node1
	Address    string // of the pod's sandbox; empty: the host's address
	Containers []ContainerReadiness
}

// ContainerReadiness is a running container and its probes.
type ContainerReadiness struct {
	Name      string
	ID        string // CRI's
	StartedAt time.Time
	Probes    []manifests.Probe
}

// Verdict says why a pod is not ready.
type Verdict struct {
	// Unready is the first container that is not ready, with the reason, as in "velum is not ready: GET
	// http://127.0.0.1:80/: 503"; empty if all checked containers are ready.
	Unready string
	// Failing is why a ready pod is not healthy yet, although it may be: a probe has failed less often than kubelet
	// tolerates, or has not succeeded yet.
	Failing string
	// Unchecked are the containers that could not be checked, with reasons, as in "velum: exec probe, which only
	// kubelet can run".
	Unchecked []string
}

// judge adds to an observation what is known about the probes of the containers: of those that ran before, then of the
// others. Its error is from the runtime, when it did not return the pod's address.
func (x *Executor) judge(ctx context.Context, o *podObservation, p plan.Apply, containers []node.Container) error {
	if x.Readiness == nil || len(p.Probes) == 0 {
		return nil
	}
	isBroken := func(probe manifests.Probe) bool { return slices.Contains(p.Broken, probe.Container) }
	isExpected := func(probe manifests.Probe) bool {
		return slices.ContainsFunc(p.Expect, func(e plan.Expectation) bool { return e.Container == probe.Container })
	}
	var well, others []manifests.Probe
	for _, probe := range p.Probes {
		switch {
		case !isBroken(probe):
			well = append(well, probe)
		case isExpected(probe):
			others = append(others, probe)
		}
	}
	v, err := x.unready(ctx, p, well, containers)
	o.mismatch, o.worse = cmp.Or(o.mismatch, v.Unready), v.Unready
	o.failing, o.unchecked = v.Failing, v.Unchecked
	if err == nil && o.mismatch == "" {
		v, err = x.unready(ctx, p, others, containers)
		o.mismatch, o.stillFailing = v.Unready, v.Failing
		o.unchecked = append(o.unchecked, v.Unchecked...)
	}
	return err
}

// unready checks the containers with these probes. Its error is from the runtime.
func (x *Executor) unready(
	ctx context.Context, p plan.Apply, probes []manifests.Probe, containers []node.Container,
) (Verdict, error) {
	pod := PodReadiness{Namespace: p.Namespace}
	sandbox := ""
	for _, probe := range probes {
		c := node.FindContainer(containers, probe.Container)
		switch {
		case c == nil:
			return Verdict{Unready: probe.Container + " is not there"}, nil
		case !c.Running: // it has done its work
			continue
		}
		pod.Pod, sandbox = c.Pod, c.Sandbox
		last := len(pod.Containers) - 1
		if last < 0 || pod.Containers[last].Name != c.Name {
			pod.Containers = append(pod.Containers, ContainerReadiness{Name: c.Name, ID: c.ID, StartedAt: c.StartedAt})
			last++
		}
		pod.Containers[last].Probes = append(pod.Containers[last].Probes, probe)
	}
	if len(pod.Containers) == 0 {
		return Verdict{}, nil
	}
	if !p.HostNetwork {
		var err error
		if pod.Address, err = x.Pods.Address(ctx, sandbox); err != nil {
			return Verdict{}, fmt.Errorf("address of pod %s: %w", pod.Pod, err)
		}
	}
	v, err := x.Readiness.Unready(ctx, pod)
	if err != nil {
		v = Verdict{Unchecked: []string{err.Error()}}
	}
	return v, nil
}
