// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podNameLabel is kubelet's label for a pod's name, which for a static pod ends in the node's name
// (k8s.io/kubelet/pkg/types).
const podNameLabel = "io.kubernetes.pod.name"

// Newest returns the newest container with this name in a static pod, running or not. No such container is an error.
func (c *CRI) Newest(pod, container string) (*cri.ContainerStatus, error) {
	answer, err := c.Runtime.ListContainers(c.node.tb.Context(), &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: map[string]string{
			podNameLabel: pod + "-node1", containerNameLabel: container,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	found := answer.GetContainers()
	if len(found) == 0 {
		return nil, fmt.Errorf("cri: %s %s: no such container", pod, container)
	}
	newest := slices.MaxFunc(found, func(a, b *cri.Container) int {
		return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt())
	})
	status, err := c.Runtime.ContainerStatus(c.node.tb.Context(), &cri.ContainerStatusRequest{ContainerId: newest.GetId()})
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	return status.GetStatus(), nil
}

// WaitStarted waits until CRI says of no container that it was made and not started: a program may answer before
// containerd has written that it runs. Without kubelet or containerd nobody starts one.
func (n *Node) WaitStarted() {
	n.tb.Helper()
	if n.Containerd == nil || n.Containerd.alive() != nil || n.Kubelet == nil || n.Kubelet.alive() != nil {
		return
	}
	c := n.CRI()
	Eventually(n.tb, "containers have started", Patience, c.allStarted)
}

// allStarted is an error while the newest container of a place in a pod has been made and not started.
func (c *CRI) allStarted() error {
	answer, err := c.Runtime.ListContainers(c.node.tb.Context(), &cri.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	newest := map[[2]string]*cri.Container{}
	for _, one := range answer.GetContainers() {
		place := [2]string{one.GetLabels()[podNameLabel], one.GetLabels()[containerNameLabel]}
		if newest[place].GetCreatedAt() <= one.GetCreatedAt() {
			newest[place] = one
		}
	}
	for place, one := range newest {
		if one.GetState() == cri.ContainerState_CONTAINER_CREATED {
			return fmt.Errorf("cri: %s: made, and not started", place)
		}
	}
	return nil
}

// StopContainer stops a container without grace.
func (c *CRI) StopContainer(id string) {
	c.node.tb.Helper()
	if _, err := c.Runtime.StopContainer(c.node.tb.Context(), &cri.StopContainerRequest{ContainerId: id}); err != nil {
		c.node.tb.Fatalf("node: stop: %v", err)
	}
}
