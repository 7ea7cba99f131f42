// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
)

// Observation is the state of a control plane at one moment. The zero value is for a node without control-plane pods.
type Observation struct {
	Members []Part // of etcd
	Servers []Part // of the API
	// Err is why the members of etcd are unknown; nil if they are known, or if there is no etcd.
	Err error
}

// Part is a member of etcd or an API server.
type Part struct {
	Name    string // as in "etcd member b", "API server 10.0.0.2:6443"
	Local   bool   // runs on this node
	Healthy bool
	Seen    string // why it is not healthy; empty if it is
}

// Against returns why a member of this node must not be stopped now; empty if it may. isAPI: it is the API server. An
// unhealthy part of this node does not prevent its own restart: the update may fix it.
func Against(o Observation, isAPI bool) string {
	if o.Err != nil {
		return "etcd: " + o.Err.Error()
	}
	isDown := func(p Part) bool { return !p.Healthy }
	localDown := slices.ContainsFunc(o.Members, func(p Part) bool { return p.Local && !p.Healthy })
	var seen []string
	for _, p := range slices.Concat(o.Members, o.Servers) {
		if isDown(p) && !p.Local {
			seen = append(seen, p.Name+": "+p.Seen)
		}
	}
	for _, p := range o.Servers {
		if isDown(p) && p.Local && !isAPI && !localDown {
			seen = append(seen, p.Name+" of this node: "+p.Seen)
		}
	}
	return strings.Join(seen, "; ")
}
