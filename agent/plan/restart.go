// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// restart returns the step that restarts or verifies a pod: a pending override comes before an apply, an apply before a
// health check.
func (f *facts) restart(v follow.PodView, p PodPlan) (Step, bool) {
	if v.Duplicate.Is() {
		return Step{}, false
	}
	if s, ok := f.rollBack(v); ok || v.Override.Pending {
		return s, ok
	}
	if s, ok := f.apply(v, p); ok {
		return s, true
	}
	return f.verify(v, p)
}

// apply returns the step for an approved offer, or for one that mode auto may apply.
func (f *facts) apply(v follow.PodView, p PodPlan) (Step, bool) {
	auto, approved := f.approved(&p)
	if !approved {
		return Step{}, false
	}
	s := Step{Do: StepApply, File: v.File, Was: *v.Disk, Ours: v.Template != nil, Needs: p.Needs()}
	s.Apply = newApply(v.Was, v.Pod, f.pods, f.names)
	s.Apply.Offer, s.Apply.Change, s.Apply.Auto, s.Apply.Began = p.Offer, p.Change, auto != nil, auto
	s.Apply.Set, s.Apply.Together = p.SetName(), p.Together
	s.Apply.PullFirst = slices.ContainsFunc(p.Images, startsFromTheNode)
	if p.Change == policy.ChangeRemove {
		s.Needs, s.Apply.Remove = nil, true
		return s, true
	}
	if p.Waiting {
		s.Data, s.Bound = p.Wanted, p.bound()
	} else if pod, err := v.Disk.Parse(); err == nil {
		s.Apply.useRunningPod(pod.Pod)
	}
	s.Apply.Broken = f.notRunningBefore(v, p)
	f.expect(v, p, &s)
	f.rollbackTarget(v, &s)
	s.Apply.Digests = wantedDigests(p)
	return s, true
}

// wantedDigests returns the digests of all containers after the apply, by place.
func wantedDigests(p PodPlan) map[string]record.PinnedImage {
	out := map[string]record.PinnedImage{}
	for _, i := range p.Images {
		to := i.targetImage()
		if i.Change == "" && i.Running.Digest != "" {
			to = i.runningImage()
		}
		if node.IsContainer(i.Want.Image) && to.Digest != "" {
			out[node.PlaceOf(i.Want.Image)] = to
		}
	}
	return out
}

func (i ImagePlan) runningImage() record.PinnedImage {
	return record.PinnedImage{
		Pin: release.Pin{
			Repository: i.Want.Ask.Repository, Digest: i.Running.Digest,
		}, Config: i.Config, Tag: i.Running.Tag, Follow: i.Want.OnDisk.Tag,
	}
}

func (i ImagePlan) targetImage() record.PinnedImage {
	return record.PinnedImage{
		Pin: release.Pin{
			Repository: i.Target.Repository, Digest: i.Target.Digest,
		}, Config: i.Target.Config, Tag: i.Target.Name(), Follow: i.Target.Tag,
	}
}

// expectation returns the expectation for a container with an image. containers are the pod's current ones.
func expectation(o record.PinnedImage, kind manifests.Kind, name string, containers []node.Container) Expectation {
	e := Expectation{
		Container: name, Init: kind == manifests.KindInit, Ref: release.Reference{Repository: o.Repository, Tag: o.Follow},
		Name: o.Tag, Digest: o.Digest, Config: o.Config,
	}
	if c := node.FindContainer(containers, name); c != nil {
		e.Old = c.ID
	}
	return e
}

// useRunningPod uses probes and grace period of the pod on disk, because the template may have changed.
func (p *Apply) useRunningPod(pod manifests.Pod) {
	p.Probes, p.HostNetwork, p.Grace = pod.Probes, pod.HostNetwork, pod.Grace
	p.Once, p.Never = pod.Once, pod.Never
}

// newApply returns the data of a restart. was is the pod on disk, pod the wanted one.
func newApply(was, pod manifests.Pod, pods node.ByPod, names []string) Apply {
	if !slices.Contains(names, pod.Name) {
		names = append(slices.Clip(names), pod.Name)
	}
	return Apply{
		Pod: pod.Name, Role: cmp.Or(was.Role, pod.Role), Namespace: pod.Namespace,
		Siblings: names,
		Probes:   pod.Probes, HostNetwork: pod.HostNetwork, Grace: pod.Grace, Once: pod.Once, Never: pod.Never,
		Sandboxes: sandboxes(pods.Containers(was.Namespace, was.Name)),
	}
}

// expect sets the expectations of each restarted container. If only containers change, they are stopped; the whole pod
// restarts if its manifest or an init container changes, if a changed container does not run, or if kubelet might not
// restart a container that was stopped.
func (f *facts) expect(v follow.PodView, p PodPlan, s *Step) {
	containers := f.pods.Containers(v.Pod.Namespace, v.Pod.Name)
	s.Apply.Aside = p.restarts() || v.Was.Once || slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		c := node.FindContainer(containers, i.Want.Image.Container)
		return i.Change != "" && node.IsContainer(i.Want.Image) && (c == nil || !c.Running)
	})
	for _, i := range p.Images {
		img := i.Want.Image
		stays := i.Change == "" && (!s.Apply.Aside || slices.Contains(s.Apply.Broken, img.Container))
		if i.Target.Digest == "" || !node.IsContainer(img) || stays {
			continue
		}
		e := expectation(i.targetImage(), img.Kind, img.Container, containers)
		e.Brings = i.Brings
		e.OnNode, e.Anew, e.Bound = f.isOnNode(i) || f.isPinned(v, i), s.Apply.Aside, i.Bound
		s.Apply.Expect = append(s.Apply.Expect, e)
		if c := node.FindContainer(containers, img.Container); !s.Apply.Aside && c != nil && c.Running {
			s.Apply.Stop = append(s.Apply.Stop, c.ID)
		}
	}
}

// notRunningBefore returns the containers that did not run before the apply, so that the update is not the cause. If no
// container ran, that includes the init containers.
func (f *facts) notRunningBefore(v follow.PodView, p PodPlan) []string {
	if v.Was.Name != v.Pod.Name {
		return nil
	}
	var out, inits []string
	approval, ran := f.rec.Approved[v.File], false
	for _, i := range p.Images {
		name := i.Want.Image.Container
		began := approval.HasRun(name) // an interrupted apply may have stopped it
		unknown := i.Flaps && !f.runsGood(i, f.rec.Good[record.GoodKey(v.File, name)])
		switch {
		case i.Want.Image.Kind == manifests.KindInit:
			inits = append(inits, name)
		case !i.mustRun():
		case !i.Well && !began || unknown:
			out = append(out, name)
		default:
			ran = true
		}
	}
	if len(out) > 0 && !ran {
		out = append(out, inits...)
	}
	return out
}

// rollbackTarget sets the override to apply if the pod does not come up.
func (f *facts) rollbackTarget(v follow.PodView, s *Step) {
	o, err := f.overrideTo(v, func(_ string, g record.Good) release.Pin {
		return release.Pin{Repository: g.Repository, Digest: g.Running}
	})
	switch {
	case err != nil:
		s.Apply.NoRollback = err.Error()
	case len(o.Images) == 0:
		s.Apply.NoRollback = "no other release is known to have run well"
	default:
		s.Apply.Rollback = &o
	}
}

// overrideTo returns an override that pins each container to the digest that target chooses.
func (f *facts) overrideTo(
	v follow.PodView, target func(container string, g record.Good) release.Pin,
) (record.Override, error) {
	if !v.Managed {
		return record.Override{}, fmt.Errorf("%s", v.Unmanaged())
	}
	was, err := v.Override.Unpinned(*v.Disk)
	if err != nil {
		return record.Override{}, err
	}
	return record.Pin(was.Data, "", f.now, func(img manifests.Image) record.PinnedImage {
		if _, isBound := v.Bound[node.PlaceOf(img)]; !isBound && manifests.SplitReference(img.Reference).Digest != "" {
			return record.PinnedImage{} // written by a person
		}
		p := target(img.Container, f.rec.Good[record.GoodKey(v.File, img.Container)])
		if at := v.Override.Images[node.PlaceOf(img)]; at.Pin == p {
			return at
		}
		rel := f.rec.Releases[release.Key(p.Repository, p.Digest)]
		return record.PinnedImage{Pin: p, Config: rel.Config, Tag: rel.Name()}
	})
}

// isPinned reports whether the wanted pod manifest has the image by digest.
func (f *facts) isPinned(v follow.PodView, i ImagePlan) bool {
	at, ok := v.PinnedAt(i.Want.Image)
	return ok && at.Digest == i.Target.Digest
}

// restarts reports whether the offer restarts all containers of the pod.
func (p *PodPlan) restarts() bool {
	return p.Waiting || slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return i.Change != "" && i.Want.Image.Kind == manifests.KindInit
	})
}

// pullHazardHolds holds a pod if its restart would pull a refused release: an image keeps its running release, but its
// tag names another one.
func (f *facts) pullHazardHolds(v follow.PodView, p *PodPlan) {
	if !p.restarts() {
		return
	}
	for _, i := range p.Images {
		is, rule := i.Offer.Follow, f.policy.RuleFor(i.Target.Repository)
		kept := i.Target.Digest != is.Digest && (i.Target.Tag == is.Tag || policy.AreEquivalent(i.Target.Tag, is.Tag, rule))
		gated := f.inv.Gated[release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}] == i.Target.Digest
		if kept && len(i.Offer.Refused) > 0 && !f.isOnNode(i) && !f.isPinned(v, i) && !i.Bound && !gated {
			reason := fmt.Sprintf("%s: a restart would start %s", i.Want.Ask, i.Offer.Refused[0])
			p.Holds = append(p.Holds, status.Hold{Name: status.HoldRefused, Reason: reason, Image: i.Want.Ask.Repository})
		}
	}
}

// isOnNode reports whether kubelet starts the target from the node, whatever its tag names in
// the registry.
func (f *facts) isOnNode(i ImagePlan) bool {
	h, _ := f.held.Named(release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}.String())
	return i.Want.PullPolicy == manifests.PullIfNotPresent && i.Want.Image.Editable && h.Digest == i.Target.Digest
}

// startsFromTheNode reports whether kubelet starts an image without asking the registry.
func startsFromTheNode(i ImagePlan) bool {
	return i.Target.Digest != "" && node.IsContainer(i.Want.Image) && i.Want.PullPolicy != manifests.PullAlways
}

// sandboxes returns the sandboxes of containers, without duplicates.
func sandboxes(containers []node.Container) []string {
	var out []string
	for _, c := range containers {
		out = append(out, c.Sandbox)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
