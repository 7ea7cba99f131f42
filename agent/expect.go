// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

// stands reports whether a yes is young enough. One from the future was given
// under a wrong clock.
func (y Approval) stands(now time.Time) bool {
	age := now.Sub(y.At)
	return age <= ApprovalAge && age >= -ApprovalAge
}

// apply makes the step that a standing approval asks for, if nothing holds it.
func (d *decider) apply(v podView, p PodPlan) (Step, bool) {
	yes, ok := d.rec.Approved[v.file]
	if !ok || p.Offer == "" || yes.Offer != p.Offer || len(p.Holds) > 0 || !yes.stands(d.now) {
		return Step{}, false
	}
	s := Step{Do: StepApply, File: v.file, Was: *v.disk, Needs: p.needs()}
	s.Apply = Apply{
		Pod: v.pod.Name, Namespace: v.pod.Namespace, Siblings: d.names,
		Offer: p.Offer, Change: p.Change,
		Remove:    p.Change == ChangeRemove,
		PullFirst: d.policy.PullPolicy == manifests.PullIfNotPresent,
	}
	if s.Apply.Remove {
		s.Needs = nil
		return s, true
	}
	if p.Waiting {
		s.Data = p.Wanted
	}
	d.expect(v, p, &s)
	return s, true
}

// expect lists what each container that starts anew must run in the end, and
// what to stop for it where the pod manifest itself does not change: the pod
// where an init container changes, else the containers that do.
func (d *decider) expect(v podView, p PodPlan, s *Step) {
	containers := d.inv.podContainers(v.pod.Namespace, v.pod.Name, d.names)
	whole := p.restarts()
	if whole && s.Data == nil {
		s.Apply.StopSandboxes = sandboxes(p, containers)
	}
	for _, i := range p.Images {
		img := i.Want.Image
		if i.Target.Digest == "" || !isContainer(img) || (!whole && i.Change == "") {
			continue
		}
		e := Expectation{
			Container: img.Container, Init: img.Kind == manifests.KindInit, Anew: s.Data != nil,
			Ref:    Reference{i.Target.Repository, i.Target.Tag},
			Digest: i.Target.Digest, Config: i.Target.Config, OnNode: d.isOnNode(i),
		}
		if c := container(containers, img.Container); c != nil {
			e.Old = c.ID
			if !whole && c.Running {
				s.Apply.Stop = append(s.Apply.Stop, c.ID)
			}
		}
		s.Apply.Expect = append(s.Apply.Expect, e)
	}
}

// restarts reports whether all containers of the pod start anew with its offer:
// the pod manifest changes, or an init container does.
func (p *PodPlan) restarts() bool {
	return p.Waiting || slices.ContainsFunc(p.Images, changesInit)
}

// traps holds a pod back whose restart would pull what a rule refuses: one of its
// images keeps what runs, but the tag that kubelet will pull names something else.
func (d *decider) traps(p *PodPlan) {
	if !p.restarts() {
		return
	}
	for _, i := range p.Images {
		is, rule := i.Offer.Follow, d.policy.rule(i.Target.Repository)
		kept := i.Target.Digest != is.Digest && (i.Target.Tag == is.Tag || areTwins(i.Target.Tag, is.Tag, rule))
		if kept && len(i.Offer.Refused) > 0 && !d.isOnNode(i) {
			reason := fmt.Sprintf("%s: its restart would start %s", i.Want.Ask, i.Offer.Refused[0])
			p.Holds = append(p.Holds, Hold{HoldRefused, reason})
		}
	}
}

// isOnNode reports whether kubelet starts what an image keeps running from the
// node alone, whatever its tag names by now.
func (d *decider) isOnNode(i ImagePlan) bool {
	name := Reference{i.Target.Repository, i.Target.Tag}.String()
	return d.policy.PullPolicy == manifests.PullIfNotPresent && i.Want.Image.Editable &&
		slices.ContainsFunc(d.inv.Held, func(h HeldImage) bool { return h.Name == name && h.Digest == i.Target.Digest })
}

func changesInit(i ImagePlan) bool {
	return i.Change != "" && i.Want.Image.Kind == manifests.KindInit
}

// sandboxes are those that the pod's containers are in, each once; kubelet may
// have removed the init container itself long ago.
func sandboxes(p PodPlan, containers []Container) []string {
	var out []string
	for _, i := range p.Images {
		if c := container(containers, i.Want.Image.Container); c != nil && isContainer(i.Want.Image) {
			out = append(out, c.Sandbox)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
