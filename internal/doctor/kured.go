// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"
)

// checkKured reads the lock of kured, as an apply does.
func (n Node) checkKured(ctx context.Context) []Finding {
	const check = "kured"
	set := n.Apply.Kured
	if set == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(set, "/")
	switch nodes, err := n.Reboots(ctx); {
	case err != nil:
		return []Finding{fail(check, err, "correct apply.kured or apply.lock.kubeconfig, or let its user get "+
			"daemonsets.apps "+name+" in namespace "+namespace+": docs/fleets.md has a Role")}
	case len(nodes) > 0:
		return []Finding{advise(check, "kured reboots "+strings.Join(nodes, ", ")+": nothing is applied meanwhile",
			"wait for the reboot; if it does not end, see kubectl -n "+namespace+" logs daemonset/"+name)}
	}
	return []Finding{ok(check, set+" can be read, or does not exist: kured reboots no node")}
}
