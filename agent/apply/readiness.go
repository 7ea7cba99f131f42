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
	"github.com/kubic-project/image-update-agent/manifests"
)

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
