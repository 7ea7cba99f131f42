// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// notRunningBefore names a container of a pod that did not run before its apply: then it is
// not made the update's fault.
func (rp restartPlanner) notRunningBefore(v follow.PodView, p PodPlan) string {
	began := rp.rec.Approved[v.File].Well // an apply that was cut short may have left nothing running
	for _, i := range p.Images {
		is := i.Want.Image.Kind == manifests.KindContainer && i.Want.OnDisk.Repository != ""
		unknown := i.Flaps && !rp.runsGood(i, rp.rec.Good[record.GoodKey(v.File, i.Want.Image.Container)])
		if is && (!i.Well && !began || unknown) && v.Was.Name == v.Pod.Name {
			return i.Want.Image.Container
		}
	}
	return ""
}

// rollbackTarget plans how a pod returns to what ran well before, if it does not come up.
func (rp restartPlanner) rollbackTarget(v follow.PodView, s *Step) {
	o, err := rp.overrideTo(v, func(_ string, g record.Good) release.Pin {
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

// overrideTo is the override that has a pod run the digests that to chooses of those
// that ran well.
func (rp restartPlanner) overrideTo(
	v follow.PodView, to func(container string, g record.Good) release.Pin,
) (record.Override, error) {
	if !v.Managed {
		return record.Override{}, fmt.Errorf("%s", v.Unmanaged())
	}
	was, err := v.Override.Unpinned(*v.Disk)
	if err != nil {
		return record.Override{}, err
	}
	return record.Pin(was.Data, "", rp.now, func(img manifests.Image) record.PinnedImage {
		p := to(img.Container, rp.rec.Good[record.GoodKey(v.File, img.Container)])
		if at := v.Override.Images[node.PlaceOf(img)]; at.Pin == p {
			return at // as it stands there
		}
		rel := rp.rec.Releases[release.Key(p.Repository, p.Digest)]
		return record.PinnedImage{Pin: p, Config: rel.Config, Tag: rel.Name()}
	})
}

// PinnedFor is what an override names for the container of an expectation.
func PinnedFor(o record.Override, e Expectation) (record.PinnedImage, bool) {
	at, ok := o.Images[e.place()]
	return at, ok
}

// place is that of the container in its pod manifest, see PlaceOf.
func (e Expectation) place() string {
	kind := manifests.KindContainer
	if e.Init {
		kind = manifests.KindInit
	}
	return node.PlaceOf(manifests.Image{Kind: kind, Container: e.Container})
}

// Proved are the containers of a step whose expectations were met.
func (s Step) Proved() []record.Proved {
	var out []record.Proved
	for _, e := range s.Apply.Expect {
		out = append(
			out, record.Proved{
				Container: e.Container, Place: e.place(), Pin: release.Pin{
					Repository: e.Ref.Repository, Digest: e.Digest,
				}, Config: e.Config,
			},
		)
	}
	return out
}

// rollBack makes the step that brings a pod to its override. What the node has
// against restarting pods does not hold it: the pod does not run well as it is.
func (rp restartPlanner) rollBack(v follow.PodView) (Step, bool) {
	if !v.Override.Pending || v.Err != nil || rp.inv.Busy != "" { // one without a file is not pending
		return Step{}, false
	}
	s, err := StepTo(v.Override, *v.Disk, v.Template != nil, rp.inv, rp.names)
	return s, err == nil
}

// StepTo is the step that brings a pod from a pod manifest to an override. ours: it has
// a template. names are those of all static pods.
func StepTo(o record.Override, disk node.PodFile, ours bool, inv node.Inventory, names []string) (Step, error) {
	pod, err := manifests.Parse([]byte(o.Data))
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	was, err := disk.Parse()
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	s := Step{Do: StepRollBack, File: disk.Name, Was: disk, Data: []byte(o.Data), Ours: ours}
	s.Apply = newApply(was, pod, inv, names)
	s.Apply.Aside = string(disk.Data) != o.Data
	containers := inv.PodContainers(pod.Namespace, pod.Name, names)
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		kind, name, _ := strings.Cut(place, " ")
		e := expectation(o.Images[place], manifests.Kind(kind), name, containers)
		e.OnNode, e.Anew = true, s.Apply.Aside
		s.Apply.Expect = append(s.Apply.Expect, e)
	}
	return s, nil
}

// needsRestore reports whether a pod that was rolled back has got another pod manifest,
// as by a rollback of the system, by which kubelet starts what is denied, and does not
// run yet: nobody's yes is needed to bring it back. What follows anything else is
// somebody's edit.
func (rp restartPlanner) needsRestore(v *follow.PodView) bool {
	o := v.Override
	if v.Err != nil || v.Template == nil || v.Disk == nil || o.Data == "" || o.Data == string(v.Disk.Data) {
		return false
	}
	containers := rp.inv.PodContainers(v.Was.Namespace, v.Was.Name, rp.names)
	return slices.ContainsFunc(v.Was.Images, func(i manifests.Image) bool {
		_, ours := o.Images[node.PlaceOf(i)]
		c := node.FindContainer(containers, i.Container)
		ref, _ := release.ParseReference(i.Reference)
		_, denied := rp.rec.Denies(rp.lastSeen(ref))
		return ours && denied && node.Pulled(i) && i.Kind == manifests.KindContainer && (c == nil || !c.Running)
	})
}

// prove makes the step that proves what a pod runs by nobody's approval: kubelet
// took it by itself, or an apply was cut short.
func (rp restartPlanner) prove(v follow.PodView, p PodPlan) (Step, bool) {
	if p.Err != nil || v.Disk == nil {
		return Step{}, false
	}
	s := Step{Do: StepProve, File: v.File, Was: *v.Disk, Apply: newApply(v.Was, v.Pod, rp.inv, rp.names)}
	s.Apply.Offer = p.ID
	if pod, err := v.Disk.Parse(); err == nil {
		s.Apply.useRunningPod(pod)
	}
	containers := rp.inv.PodContainers(v.Pod.Namespace, v.Pod.Name, rp.names)
	unproved := false
	for _, i := range p.Images {
		img := i.Want.Image
		if !node.IsContainer(img) || i.Want.Ask.Repository == "" || i.Running.Digest == "" {
			continue
		}
		g := rp.rec.Good[record.GoodKey(v.File, img.Container)]
		unproved = unproved || g.Running != "" && !rp.runsGood(i, g)
		s.Apply.Expect = append(s.Apply.Expect, expectation(i.runningImage(), img.Kind, img.Container, containers))
	}
	f := rp.rec.Failed[v.File]
	if !unproved || isFailureOf(f, s.Apply) && !rp.ranLongEnough(p, containers) {
		return Step{}, false
	}
	rp.rollbackTarget(v, &s)
	return s, true
}

// runsGood reports whether an image runs what ran well.
func (f *facts) runsGood(i ImagePlan, g record.Good) bool {
	return f.rec.IsGood(g, i.Want.Ask.Repository, i.Running.Digest, i.Config)
}

// ranLongEnough reports that a pod that did not come up has run for as long as a proof
// takes.
func (rp restartPlanner) ranLongEnough(p PodPlan, containers []node.Container) bool {
	for _, i := range p.Images {
		c := node.FindContainer(containers, i.Want.Image.Container)
		if node.IsContainer(i.Want.Image) && i.Want.Ask.Repository != "" &&
			(!i.Well || c == nil || rp.isYoung(*c)) {
			return false
		}
	}
	return true
}

// isYoung reports that a container has not run for as long as a proof takes. One
// from the future was started under a wrong clock.
func (f *facts) isYoung(c node.Container) bool {
	age := f.now.Sub(c.StartedAt)
	return age >= 0 && age < f.policy.Settle
}

// isFailureOf reports whether a failure is of what a pod runs.
func isFailureOf(f record.Failure, p Apply) bool {
	runs := strings.Fields(p.Runs())
	return f.Runs != "" && !slices.ContainsFunc(strings.Fields(f.Runs), func(one string) bool {
		return !slices.Contains(runs, one)
	})
}

// Runs names what is expected of a pod's containers.
func (p Apply) Runs() string {
	var out []string
	for _, e := range p.Expect {
		out = append(out, e.Container+"="+e.Digest.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
