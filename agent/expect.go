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

// restart is what happens to the running pod: it is brought to its override, to
// what was approved, or what it runs is proved.
func (d *decider) restart(v podView, p PodPlan) (Step, bool) {
	if s, ok := d.rollBack(v); ok || v.override.Pending {
		return s, ok
	}
	if s, ok := d.apply(v, p); ok {
		return s, true
	}
	return d.prove(v, p)
}

// apply makes the step that a standing approval asks for, or mode auto, if nothing
// holds it.
func (d *decider) apply(v podView, p PodPlan) (Step, bool) {
	if p.Offer == "" || len(p.Holds) > 0 {
		return Step{}, false
	}
	yes, approved := d.rec.Approved[v.file]
	approved = approved && yes.Offer == p.Offer && yes.stands(d.now)
	if !approved && (!d.policy.Auto || !p.Ready || len(p.Waits) > 0 || p.Change == ChangeRemove) {
		return Step{}, false
	}
	s := Step{Do: StepApply, File: v.file, Was: *v.disk, Ours: v.template != nil, Needs: p.needs()}
	s.Apply = about(v.was, v.pod, d.inv, d.names)
	s.Apply.Offer, s.Apply.Change, s.Apply.Auto = p.Offer, p.Change, !approved
	s.Apply.PullFirst = slices.ContainsFunc(p.Images, startsFromTheNode)
	if p.Change == ChangeRemove {
		s.Needs, s.Apply.Remove = nil, true
		return s, true
	}
	if p.Waiting {
		s.Data = p.Wanted
	} else if pod, err := v.disk.Parse(); err == nil {
		s.Apply.asRuns(pod)
	}
	d.expect(v, p, &s)
	if broken := d.broken(v, p); broken != "" {
		s.Apply.NoBack = broken + " did not run before either"
	} else {
		d.back(v, &s)
	}
	s.Apply.Ahead = ahead(p)
	return s, true
}

// ahead are the digests that the containers of a pod are to run, those that keep
// what they run included.
func ahead(p PodPlan) map[string]Overridden {
	out := map[string]Overridden{}
	for _, i := range p.Images {
		to := i.toBe()
		if i.Change == "" && i.Running.Digest != "" {
			to = i.is()
		}
		if isContainer(i.Want.Image) && to.Digest != "" {
			out[placeOf(i.Want.Image)] = to
		}
	}
	return out
}

// is and toBe are what an image runs and what it is to run.
func (i ImagePlan) is() Overridden {
	return Overridden{
		Pin: Pin{i.Want.Ask.Repository, i.Running.Digest}, Config: i.Config, Tag: i.Running.Tag, Follow: i.Want.OnDisk.Tag,
	}
}

func (i ImagePlan) toBe() Overridden {
	return Overridden{
		Pin: Pin{i.Target.Repository, i.Target.Digest}, Config: i.Target.Config, Tag: i.Target.Name(), Follow: i.Target.Tag,
	}
}

// expected is that a container runs an image. containers are the pod's of now.
func (o Overridden) expected(kind manifests.Kind, name string, containers []Container) Expectation {
	e := Expectation{
		Container: name, Init: kind == manifests.KindInit, Ref: Reference{o.Repository, o.Follow},
		Name: o.Tag, Digest: o.Digest, Config: o.Config,
	}
	if c := container(containers, name); c != nil {
		e.Old = c.ID
	}
	return e
}

// asRuns takes what is to be known of a pod from the one that runs: its template may
// be another by now.
func (p *Apply) asRuns(pod manifests.Pod) {
	p.Probes, p.HostNetwork, p.Grace = pod.Probes, pod.HostNetwork, pod.Grace
}

// about is what all steps that restart a pod, or observe it, have to know of it. was is
// the pod on disk, pod what it is to be.
func about(was, pod manifests.Pod, inv Inventory, names []string) Apply {
	return Apply{
		Pod: pod.Name, Namespace: pod.Namespace, Siblings: append(slices.Clone(names), pod.Name),
		Probes: pod.Probes, HostNetwork: pod.HostNetwork, Grace: pod.Grace,
		Sandboxes: sandboxes(inv.podContainers(was.Namespace, was.Name, names)),
	}
}

// expect lists what each container that starts anew must run in the end, and what
// to stop for it where the pod manifest itself does not change: the containers
// that do. The whole pod goes where an init container changes, and where one that
// does is not running.
func (d *decider) expect(v podView, p PodPlan, s *Step) {
	containers := d.inv.podContainers(v.pod.Namespace, v.pod.Name, d.names)
	s.Apply.Aside = p.restarts() || slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		c := container(containers, i.Want.Image.Container)
		return i.Change != "" && isContainer(i.Want.Image) && (c == nil || !c.Running)
	})
	for _, i := range p.Images {
		img := i.Want.Image
		if i.Target.Digest == "" || !isContainer(img) || (!s.Apply.Aside && i.Change == "") {
			continue
		}
		e := i.toBe().expected(img.Kind, img.Container, containers)
		e.OnNode, e.Anew = d.isOnNode(i) || d.isPinned(v, i), s.Apply.Aside
		s.Apply.Expect = append(s.Apply.Expect, e)
		if c := container(containers, img.Container); !s.Apply.Aside && c != nil && c.Running {
			s.Apply.Stop = append(s.Apply.Stop, c.ID)
		}
	}
}

// isPinned reports whether an image is named by its digest in what is wanted.
func (d *decider) isPinned(v podView, i ImagePlan) bool {
	at, ok := v.overridden(i.Want.Image)
	return ok && at.Digest == i.Target.Digest
}

// restarts reports whether all containers of the pod start anew with its offer:
// the pod manifest changes, or an init container does.
func (p *PodPlan) restarts() bool {
	return p.Waiting || slices.ContainsFunc(p.Images, changesInit)
}

// traps holds a pod back whose restart would pull what a rule refuses: one of its
// images keeps what runs, but the tag that kubelet will pull names something else.
func (d *decider) traps(v podView, p *PodPlan) {
	if !p.restarts() {
		return
	}
	for _, i := range p.Images {
		is, rule := i.Offer.Follow, d.policy.rule(i.Target.Repository)
		kept := i.Target.Digest != is.Digest && (i.Target.Tag == is.Tag || areTwins(i.Target.Tag, is.Tag, rule))
		if kept && len(i.Offer.Refused) > 0 && !d.isOnNode(i) && !d.isPinned(v, i) {
			reason := fmt.Sprintf("%s: its restart would start %s", i.Want.Ask, i.Offer.Refused[0])
			p.Holds = append(p.Holds, Hold{Name: HoldRefused, Reason: reason, Image: i.Want.Ask.Repository})
		}
	}
}

// isOnNode reports whether kubelet starts what an image keeps running from the
// node alone, whatever its tag names by now.
func (d *decider) isOnNode(i ImagePlan) bool {
	name := Reference{i.Target.Repository, i.Target.Tag}.String()
	return i.Want.PullPolicy == manifests.PullIfNotPresent && i.Want.Image.Editable &&
		slices.ContainsFunc(d.inv.Held, func(h HeldImage) bool { return h.Name == name && h.Digest == i.Target.Digest })
}

// startsFromTheNode reports whether kubelet asks no registry for a container's image.
func startsFromTheNode(i ImagePlan) bool {
	return i.Target.Digest != "" && isContainer(i.Want.Image) && i.Want.PullPolicy != manifests.PullAlways
}

func changesInit(i ImagePlan) bool {
	return i.Change != "" && i.Want.Image.Kind == manifests.KindInit
}

// sandboxes are those that containers are in, each once.
func sandboxes(containers []Container) []string {
	var out []string
	for _, c := range containers {
		out = append(out, c.Sandbox)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
