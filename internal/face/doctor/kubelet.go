// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkKubelet says whether kubelet runs, and reads the directory that the agent
// writes.
func (n Node) checkKubelet(ctx context.Context) []Finding {
	const check = "kubelet"
	var out []Finding
	unit := n.Platform.KubeletUnit
	kubelet, reads := systemd.Kubelet{Bus: n.Bus, Unit: unit}, ""
	if dir := n.KubeletConfig.PodManifests(); dir != "" && len(n.KubeletConfig.Problems) == 0 {
		reads = n.Platform.At(dir)
	}
	if reads != "" && reads != n.PodManifests {
		out = append(out, fail(check, fmt.Errorf("kubelet reads %s, but podManifests is %s", reads, n.PodManifests),
			"remove podManifests from the configuration: the agent then uses the directory of kubelet"))
	}
	problems := n.KubeletConfig.Problems
	if n.Unread != nil { // it names them
		out = append(out, fail(check, n.Unread, "repair what it names, or set podManifests in the agent's configuration; "+
			"until then the agent applies nothing"))
		problems = nil
	}
	for _, problem := range problems {
		out = append(out, warn(check, "cannot read all of its configuration: "+problem.Error(),
			"repair what it names; until then the agent uses podManifests and disk.highMark as its own configuration has them"))
	}
	if place := n.KubeletConfig.EventedPLEG(); place != "" {
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

// checkPlatform names the distribution of Kubernetes and the paths that come with it and not from a setting; and what
// speaks for another one.
func (n Node) checkPlatform() []Finding {
	name := n.Platform.Name
	if version := n.Platform.Version(); version != "" {
		name += " " + outside.Line(version, 64)
	}
	if n.Settings.Platform != "" {
		name += ", as configured"
	}
	details := []string{name}
	for _, path := range n.Platform.Paths() {
		details = append(details, path.Name+" "+path.Value)
	}
	chosen := strings.Join(details, ", ")
	var out []Finding
	for _, s := range platform.Look(n.Platform.Root) {
		if n.isChosen(s.Platform) {
			out = append(out, n.chosen(s, chosen))
		}
	}
	if n.Settings.Platform != "" {
		return out
	}
	for _, s := range platform.Look(n.Platform.Root) {
		if n.isChosen(s.Platform) || s.Platform.KubeletUnit == n.Platform.KubeletUnit { // caasp is made of kubeadm
			continue
		}
		out = append(out, n.besideChosen(s)...)
	}
	return out
}

func (n Node) hasData() bool {
	_, err := os.Lstat(n.Platform.At(n.Platform.Data))
	return err == nil
}

func (n Node) isChosen(p platform.Platform) bool { return p.Name == n.Platform.Name }

// chosen is about the node's platform. Its data may be in another place than s has looked at.
func (n Node) chosen(s platform.Seen, detail string) Finding {
	const check = "platform"
	hasData := s.Data != "" || n.hasData()
	switch {
	case n.Platform.Config == "": // it has no installer of its own: other checks name what is missing
		return ok(check, detail)
	case s.Program == "" && hasData:
		return warn(check, detail+"; its program was not found, only "+n.Platform.Data,
			"if "+s.Platform.Name+" was removed, remove the directory; or set platform in the configuration")
	case s.Program == "":
		return warn(check, detail+"; not installed", "set platform to the installed distribution")
	case !hasData:
		return warn(check, detail+"; "+s.Program+" exists, but "+n.Platform.Data+" does not: it was never started",
			"systemctl enable --now "+strings.TrimSuffix(n.Platform.KubeletUnit, ".service")+
				", then systemctl restart image-update-agent; or set platform in the configuration")
	}
	return ok(check, detail)
}

// besideChosen is about another platform that is on the node.
func (n Node) besideChosen(s platform.Seen) []Finding {
	const check = "platform"
	switch {
	case s.IsWhole():
		return []Finding{warn(check, s.Platform.Name+" is also on the node ("+s.Program+", "+s.Data+"): "+n.Platform.Name+
			" was chosen", "remove the one that is not running, or set platform to the one that is")}
	case s.Data != "" && s.Platform.Config != "":
		return []Finding{advise(check, s.Data+" exists, but "+s.Platform.Name+" is not installed: "+n.Platform.Name+
			" was chosen", "remove the directory, or set platform: "+s.Platform.Name)}
	case s.Program != "" && s.Platform.Config != "":
		return []Finding{advise(check, s.Program+" exists, but "+s.Platform.Data+" does not: "+n.Platform.Name+
			" was chosen", "set platform: "+s.Platform.Name+" if it should run here")}
	}
	return nil
}
