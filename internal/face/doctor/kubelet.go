// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/node/config"
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
		out = append(out, fail(check, fmt.Errorf("kubelet reads %s, but podManifests is %s", reads, n.PodManifests),
			"remove podManifests from the configuration: the agent then uses the directory of kubelet"))
	}
	problems := config.KubeletProblems(n.Platform)
	if n.Unread != nil { // it names them
		out = append(out, fail(check, n.Unread, "repair the file, or set podManifests in the configuration of the agent; "+
			"until then the agent applies nothing"))
		problems = nil
	}
	for _, problem := range problems {
		out = append(out, warn(check, "cannot read all of its configuration: "+problem.Error(),
			"repair the file, or set podManifests and disk.highMark in the configuration of the agent"))
	}
	if place := config.EventedPLEG(n.Platform); place != "" {
		out = append(out, advise(check, place+": feature gate EventedPLEG: from its second rebuild within minutes on, "+
			"a pod is down for 7 to 17 s instead of one", "turn the feature gate off"))
	}
	for _, h := range kubelet.Holds(ctx) {
		out = append(out, warn(check, h.Reason,
			"systemctl status "+strings.TrimSuffix(unit, ".service")+"; until then the agent applies nothing"))
	}
	switch {
	case len(out) > 0:
		return out
	case reads == "" && !kubelet.Exists(ctx):
		return []Finding{warn(check, "kubelet not found (no "+unit+", no config.yaml); ignore if you start it another way",
			"install kubelet: it runs the pod manifests that the agent writes")}
	default:
		return []Finding{ok(check, cmp.Or(reads, "its configuration names no directory; podManifests is "+n.PodManifests))}
	}
}
