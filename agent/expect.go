// SPDX-License-Identifier: Apache-2.0

package agent

import (
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
	whole := s.Data != nil
	if !whole && slices.ContainsFunc(p.Images, changesInit) {
		whole = true
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
			Digest: i.Target.Digest, Config: i.Target.Config,
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
