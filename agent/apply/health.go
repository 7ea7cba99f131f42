// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// healthInterval is the time between two observations of a pod. kubelet relists each second.
const healthInterval = 500 * time.Millisecond

// crashLoopEnds is the number of ends of a container after which its health check fails. kubelet restarts it at once,
// then after 10, 20 and 40 s, so the container had more than a minute for its dependencies. Waiting for the deadline
// would only prolong the downtime.
const crashLoopEnds = 5

// awaitHealthy waits until CRI shows each container on its digest for the settle time without a restart. A restart
// begins the settle time again. After an error a.worse tells whether a container that ran before is the cause.
func (a *attempt) awaitHealthy(ctx context.Context) error {
	pod := a.step.Apply
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	p := newHealthCheck(pod, a.Policy)
	for {
		// The deadline must not interrupt an observation: the last one gives the reason.
		o, err := a.observe(ctx, pod)
		if ctx.Err() != nil {
			return fmt.Errorf("pod %s: %w", pod.Pod, ctx.Err())
		}
		p.add(o, err)
		switch {
		case err != nil:
		case o.tagMoved != "" && (!o.ranWell || a.step.Do == plan.StepVerify): // StepVerify writes no pod manifest
			return a.tagMoved("%s", o.tagMoved)
		case o.pending() == "" && time.Since(p.since) >= a.Policy.Settle:
			a.passed(o, p)
			return nil
		case p.lost() != "":
			a.worse = !p.wellStays()
			return &release.UnhealthyError{Reason: fmt.Sprintf("pod %s: %s", pod.Pod, p.lost())}
		default:
			if expect := a.tryRescue(ctx, o, p.began); expect != nil {
				pod.Expect = expect
			}
		}
		a.reportHealth(o, p)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		switch {
		case time.Since(p.began) < p.timeout()+p.settle:
		case o.tagMoved != "":
			return a.tagMoved("%s", o.tagMoved)
		default:
			a.worse = !p.wellStays()
			return p.timedOut(a.whyDown(ctx, o), err)
		}
	}
}

// passed notes a passed health check.
func (a *attempt) passed(o podObservation, p *healthCheck) {
	for _, c := range o.unchecked {
		a.Log.Warn("running, not checked", "file", a.step.File, "container", c)
	}
	a.result.Unchecked, a.up = o.unchecked, p.since
}

func (a *attempt) reportHealth(o podObservation, p *healthCheck) {
	a.phase = o.phase()
	report := status.Progress{
		Reference: a.step.Apply.Pod, Phase: a.phase, PodManifest: a.step.File, Since: p.began.UTC(),
		Deadline: p.began.Add(p.timeout() + p.settle).UTC(), Reason: outside.Text(o.pending()),
	}
	if a.phase == status.PhaseVerifying {
		report.HealthyAt = p.since.Add(a.Policy.Settle).UTC()
	}
	a.Progress.Report(report)
}

// healthCheck is the result of the observations so far.
type healthCheck struct {
	pod       plan.Apply
	limit     time.Duration // without settle
	settle    time.Duration
	began     time.Time
	since     time.Time // the pod is unchanged
	wellSince time.Time // the containers that ran before are unchanged
	last      podObservation
	restarts  int // how often the pod stopped running as expected
	ended     []endedContainer
}

func newHealthCheck(pod plan.Apply, by policy.Policy) *healthCheck {
	now := time.Now()
	return &healthCheck{pod: pod, limit: by.ApplyTimeout, settle: by.Settle, began: now, since: now, wellSince: now}
}

// maxStart limits how long a health check waits for a startup probe: until it ends, nothing else is applied.
const maxStart = 30 * time.Minute

// timeout is how long the pod may take to become healthy: once its containers run, as long as its startup probes allow,
// if that is longer than applyTimeout.
func (p *healthCheck) timeout() time.Duration {
	return max(p.limit, min(p.startup(), maxStart))
}

// startup is the longest time that a startup probe of a started pod allows.
func (p *healthCheck) startup() (out time.Duration) {
	for _, probe := range p.pod.Probes {
		if p.last.started && probe.Type == manifests.ProbeStartup && !slices.Contains(p.pod.Broken, probe.Container) {
			out = max(out, probe.Patience())
		}
	}
	return out
}

// add adds an observation, or the error of a failed one, which restarts the settle time.
func (p *healthCheck) add(o podObservation, err error) {
	if err != nil {
		p.since, p.wellSince = time.Now(), time.Now()
		return
	}
	for _, e := range o.ended {
		if !slices.Contains(p.ended, e) {
			p.ended = append(p.ended, e)
		}
	}
	if o.worse != "" || o.wellStarts != p.last.wellStarts {
		p.wellSince = time.Now()
	}
	if o.mismatch != "" || o.starts != p.last.starts {
		p.since = time.Now()
		if p.last.starts != "" && p.last.mismatch == "" {
			p.restarts++
		}
	}
	p.last = o
}

// wellStays reports whether the containers that ran before the restart have run unchanged for the settle time, if there
// are any others.
func (p *healthCheck) wellStays() bool {
	return len(p.pod.Broken) > 0 && p.last.worse == "" && p.last.failing == "" && time.Since(p.wellSince) >= p.settle
}

// lost returns why a container will not become healthy; "" if none is known. One that did not run before is given up
// only when the others have settled.
func (p *healthCheck) lost() string {
	count := map[string]int{}
	for _, e := range p.ended {
		if slices.Contains(p.pod.Broken, e.name) && !p.wellStays() {
			continue
		}
		switch count[e.name]++; {
		case p.pod.Never:
			return fmt.Sprintf("%s, and kubelet does not restart it", e.mismatch)
		case count[e.name] == crashLoopEnds:
			return fmt.Sprintf("%s exited %d times: %s", e.name, crashLoopEnds, e.mismatch)
		}
	}
	return ""
}

// timedOut returns the error of a health check that timed out. cause is of a container that does not run, err of the
// last observation.
func (p *healthCheck) timedOut(cause string, err error) error {
	why := cmp.Or(p.last.worse, p.last.pending())
	switch {
	case err != nil:
		why = err.Error()
	case why == "" && p.restarts == 0:
		why = "it started too late for the health check"
	case why == "":
		why = fmt.Sprintf("it does not stay up (it stopped %d times)", p.restarts)
	case cause != "":
		why += "; " + cause
	}
	if allows := p.startup(); allows > p.timeout() {
		why += fmt.Sprintf(" (its startup probe allows %s)", allows)
	}
	reason := fmt.Sprintf("pod %s: not running after %s: %s", p.pod.Pod, p.timeout(), why)
	return &release.UnhealthyError{Reason: reason, Unobserved: err != nil}
}

// pending returns why the pod is not healthy; "" if it is.
func (o podObservation) pending() string { return cmp.Or(o.mismatch, o.failing, o.stillFailing) }

func (o podObservation) phase() string {
	if o.mismatch == "" && o.starts != "" {
		return status.PhaseVerifying
	}
	return status.PhaseWaiting
}

// whyDown returns why kubelet does not start the container that is down; "" if nobody knows. The end of a container
// says why it ended, not why no other follows. kubelet is asked first; it has a list only with its read-only port.
func (a *attempt) whyDown(ctx context.Context, o podObservation) string {
	if o.down == nil {
		return ""
	}
	p := a.step.Apply
	if a.Readiness != nil {
		waiting, err := a.Readiness.Waiting(ctx)
		if err != nil {
			a.Log.Debug("kubelet does not report why containers wait", "err", err)
		}
		inv := node.Inventory{Unstarted: waiting, NodeName: a.Policy.NodeName}
		for _, w := range inv.ByPod(p.Siblings).Unstarted(p.Namespace, p.Pod) {
			if w.Container == o.down.Container {
				return fmt.Sprintf("%s: %s: %s", w.Container, w.Reason, w.Message)
			}
		}
	}
	if err := a.lacksImage(ctx, *o.down); err != nil {
		return fmt.Sprintf("%s: %v", o.down.Container, err)
	}
	return ""
}

// lacksImage returns why kubelet cannot have the image of a container, by the calls of its image manager
// (EnsureImageExists): without a pull it starts what CRI lists, else what CRI can pull. nil: the image is not the
// cause.
func (a *attempt) lacksImage(ctx context.Context, e plan.Expectation) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	defer a.Progress.Heartbeat()()
	pinned := release.Key(e.Ref.Repository, e.Digest)
	switch {
	case e.Bound && !a.step.Apply.PullFirst:
		return a.asks(ctx, e)
	case e.OnNode || a.step.Apply.PullFirst:
		for _, name := range []string{e.Ref.String(), pinned} {
			if _, listed, err := a.Pods.Lists(ctx, name); err != nil || listed {
				return err
			}
		}
		return fmt.Errorf("CRI lists neither %s nor its digest %s", e.Ref, e.Digest)
	}
	_, err := a.Pods.Pull(ctx, e.Ref)
	if err != nil && ctx.Err() != nil { // it may be a large image
		return fmt.Errorf("pull %s: not finished after %s", e.Ref, registryTimeout)
	}
	return err
}
