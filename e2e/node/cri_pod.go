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

// StopContainer stops a container without grace.
func (c *CRI) StopContainer(id string) {
	c.node.tb.Helper()
	if _, err := c.Runtime.StopContainer(c.node.tb.Context(), &cri.StopContainerRequest{ContainerId: id}); err != nil {
		c.node.tb.Fatalf("node: stop: %v", err)
	}
}
