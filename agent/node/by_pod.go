// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
)

// ByPod has the containers of an inventory by static pod. It is made once for all pods.
type ByPod struct {
	containers map[podID][]Container
	unstarted  map[podID][]Waiting
}

type podID struct{ namespace, name string }

// ByPod returns the containers of the static pods with these names. If a container of a pod runs, the ended containers
// that kubelet keeps from earlier sandboxes of the pod are left out.
func (inv Inventory) ByPod(names []string) ByPod {
	isPod := make(map[string]bool, len(names))
	for _, n := range names {
		isPod[n] = true
	}
	out := ByPod{map[podID][]Container{}, map[podID][]Waiting{}}
	live := map[podID]map[string]bool{} // sandboxes
	for _, c := range inv.Containers {
		id := podID{c.Namespace, inv.owner(c.Pod, isPod)}
		if id.name == "" {
			continue
		}
		out.containers[id] = append(out.containers[id], c)
		if c.Running {
			if live[id] == nil {
				live[id] = map[string]bool{}
			}
			live[id][c.Sandbox] = true
		}
	}
	for id, sandboxes := range live {
		out.containers[id] = slices.DeleteFunc(out.containers[id], func(c Container) bool { return !sandboxes[c.Sandbox] })
	}
	for _, w := range inv.Unstarted {
		id := podID{w.Namespace, inv.owner(w.Pod, isPod)}
		out.unstarted[id] = append(out.unstarted[id], w)
	}
	return out
}

// Containers returns the containers of a static pod.
func (b ByPod) Containers(namespace, pod string) []Container {
	return b.containers[podID{namespace, pod}]
}

// Unstarted returns the containers of a static pod that kubelet does not start.
func (b ByPod) Unstarted(namespace, pod string) []Waiting { return b.unstarted[podID{namespace, pod}] }

// owner returns the name of the static pod to which a CRI pod belongs; empty if there is none. kubelet names a static
// pod <pod>-<node>. Without the node's name, owner returns the longest name that fits. That may be wrong for a pod
// whose file was just removed: velum-db-node1 may be velum-db on node1, or velum on db-node1.
func (inv Inventory) owner(criPod string, isPod map[string]bool) string {
	if pod, ok := strings.CutSuffix(criPod, "-"+inv.NodeName); ok && inv.NodeName != "" {
		if isPod[pod] {
			return pod
		}
		return ""
	}
	for end := len(criPod); ; {
		if end = strings.LastIndexByte(criPod[:end], '-'); end < 0 || isPod[criPod[:end]] {
			return criPod[:max(end, 0)]
		}
	}
}
