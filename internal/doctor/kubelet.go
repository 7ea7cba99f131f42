// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkKubelet says whether kubelet runs, and reads the directory that the agent
// writes.
func (n Node) checkKubelet(ctx context.Context) []Finding {
	const check = "kubelet"
	var out []Finding
	unit := n.Platform.KubeletUnit
	kubelet, reads := systemd.Kubelet{Bus: n.Bus, Unit: unit}, config.StaticPodPath(n.Platform)
	if reads != "" && reads != n.PodManifests {
		out = append(out, fail(check, fmt.Errorf("it reads %s, and podManifests is %s", reads, n.PodManifests),
			"take podManifests out of the configuration: without it kubelet's own is used"))
	}
	for _, problem := range config.KubeletProblems(n.Platform) {
		out = append(out, warn(check, "its configuration is not wholly known: "+problem.Error(),
			"mend the file, or set podManifests and disk.highMark in the agent's configuration"))
	}
	for _, h := range kubelet.Holds(ctx) {
		out = append(out, warn(check, h.Reason,
			"systemctl status "+strings.TrimSuffix(unit, ".service")+"; nothing is applied meanwhile"))
	}
	switch {
	case len(out) > 0:
		return out
	case reads == "" && !kubelet.Exists(ctx):
		return []Finding{warn(check, "none is found: there is neither "+unit+" nor a configuration of kubelet",
			"install kubelet: the agent writes pod manifests, and kubelet runs them; one that is run by other means "+
				"works as well")}
	default:
		return []Finding{ok(check, cmp.Or(reads, "its configuration names no directory: podManifests is "+n.PodManifests))}
	}
}
