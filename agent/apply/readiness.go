// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Readiness knows whether containers are ready to serve. CRI does not.
type Readiness interface {
	// Unready says what the containers of a pod lack to be ready. Its error is that
	// nobody could be asked at all.
	Unready(ctx context.Context, pod PodReadiness) (Verdict, error)
	// Waiting lists the containers that kubelet does not start, and why; none where
	// kubelet is not asked.
	Waiting(ctx context.Context) ([]node.Waiting, error)
}

// PodReadiness is a static pod whose readiness is asked for.
type PodReadiness struct {
	Namespace  string
	Pod        string // with the node's suffix, as CRI has it: velum-node1
	Address    string // of the pod's sandbox; empty: the host's
	Containers []ContainerReadiness
}

// ContainerReadiness is a container that runs, and how it says that it is ready.
type ContainerReadiness struct {
	Name  string
	ID    string           // CRI's
	Probe *manifests.Probe // its readiness probe; nil: it has none, and is ready as soon as it runs
}

// Verdict is what a pod lacks to be ready.
type Verdict struct {
	// Unready is the first thing, as in "velum is not ready: GET
	// http://127.0.0.1:80/: 503"; empty: nothing that was looked at.
	Unready string
	// Unchecked are the containers that nobody could check, and why, as in "velum:
	// exec probe, which only kubelet can run".
	Unchecked []string
}

// unready asks what the containers of a pod lack to be ready, by their probes. That
// nobody can tell is not that they lack something.
func (r *restart) unready(
	ctx context.Context, p plan.Apply, containers []node.Container,
) (lacks string, unchecked []string) {
	if r.Readiness == nil || len(p.Probes) == 0 {
		return "", nil
	}
	pod := PodReadiness{Namespace: p.Namespace}
	sandbox := ""
	for _, probe := range p.Probes {
		c := node.FindContainer(containers, probe.Container)
		if c == nil {
			return probe.Container + " is not there", nil
		}
		pod.Pod, sandbox = c.Pod, c.Sandbox
		pod.Containers = append(pod.Containers, ContainerReadiness{Name: c.Name, ID: c.ID, Probe: &probe})
	}
	var err error
	if !p.HostNetwork {
		pod.Address, err = r.Pods.Address(ctx, sandbox)
	}
	var v Verdict
	if err == nil {
		v, err = r.Readiness.Unready(ctx, pod)
	}
	if err != nil {
		return "", []string{err.Error()}
	}
	return v.Unready, v.Unchecked
}

// unchecked notes what a proof does not prove.
func (r *restart) unchecked(containers []string) {
	for _, c := range containers {
		r.Log.Warn("readiness not checked", "file", r.step.File, "container", c)
	}
	r.result.Unchecked = containers
}
