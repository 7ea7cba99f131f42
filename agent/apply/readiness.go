// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

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

// ContainerReadiness is a running container and its readiness probe.
type ContainerReadiness struct {
	Name  string
	ID    string           // CRI's
	Probe *manifests.Probe // nil: the container is ready as soon as it runs
}

// Verdict says why a pod is not ready.
type Verdict struct {
	// Unready is the first container that is not ready, with the reason, as in "velum is not ready: GET
	// http://127.0.0.1:80/: 503"; empty if all checked containers are ready.
	Unready string
	// Unchecked are the containers that could not be checked, with reasons, as in "velum: exec probe, which only
	// kubelet can run".
	Unchecked []string
}

// unready runs the readiness probes of a pod. Containers that could not be checked count as ready. The error is from
// the runtime, when it did not return the pod's address.
func (x *Executor) unready(
	ctx context.Context, p plan.Apply, containers []node.Container,
) (mismatch string, unchecked []string, err error) {
	if x.Readiness == nil || len(p.Probes) == 0 {
		return "", nil, nil
	}
	pod := PodReadiness{Namespace: p.Namespace}
	sandbox := ""
	for _, probe := range p.Probes {
		c := node.FindContainer(containers, probe.Container)
		if c == nil {
			return probe.Container + " is not there", nil, nil
		}
		pod.Pod, sandbox = c.Pod, c.Sandbox
		pod.Containers = append(pod.Containers, ContainerReadiness{Name: c.Name, ID: c.ID, Probe: &probe})
	}
	if !p.HostNetwork {
		if pod.Address, err = x.Pods.Address(ctx, sandbox); err != nil {
			return "", nil, fmt.Errorf("address of pod %s: %w", pod.Pod, err)
		}
	}
	v, err := x.Readiness.Unready(ctx, pod)
	if err != nil {
		return "", []string{err.Error()}, nil //nolint:nilerr // an unchecked container counts as ready
	}
	return v.Unready, v.Unchecked, nil
}
