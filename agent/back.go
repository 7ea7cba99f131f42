// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/manifests"
)

// broken names a container of a pod that did not run before its apply: then it is
// not made the update's fault.
func (d *decider) broken(v podView, p PodPlan) string {
	began := d.rec.Approved[v.file].Well // an apply that was cut short may have left nothing running
	for _, i := range p.Images {
		is := i.Want.Image.Kind == manifests.KindContainer && i.Want.OnDisk.Repository != ""
		unknown := i.Flaps && !d.runsGood(i, d.rec.Good[goodKey(v.file, i.Want.Image.Container)])
		if is && (!i.Well && !began || unknown) && v.was.Name == v.pod.Name {
			return i.Want.Image.Container
		}
	}
	return ""
}

// back plans how a pod returns to what ran well before, if it does not come up.
func (d *decider) back(v podView, s *Step) {
	o, err := d.wayBack(v, func(_ string, g Good) Pin { return Pin{g.Repository, g.Running} })
	switch {
	case err != nil:
		s.Apply.NoBack = err.Error()
	case len(o.Images) == 0:
		s.Apply.NoBack = "no other release is known to have run well"
	default:
		s.Apply.Back = &o
	}
}

// wayBack is the override that has a pod run the digests that to chooses of those
// that ran well.
func (d *decider) wayBack(v podView, to func(container string, g Good) Pin) (Override, error) {
	if !v.managed {
		return Override{}, fmt.Errorf("%s", v.unmanaged())
	}
	was, err := v.override.undone(*v.disk)
	if err != nil {
		return Override{}, err
	}
	return pin(was.Data, "", d.now, func(img manifests.Image) Overridden {
		p := to(img.Container, d.rec.Good[goodKey(v.file, img.Container)])
		if at := v.override.Images[placeOf(img)]; at.Pin == p {
			return at // as it stands there
		}
		rel := d.rec.Releases[releaseKey(p.Repository, p.Digest)]
		return Overridden{Pin: p, Config: rel.Config, Tag: rel.Name()}
	})
}

// at is what an override names for the container of an expectation.
func (o Override) at(e Expectation) (Overridden, bool) {
	at, ok := o.Images[e.place()]
	return at, ok
}

// place is that of the container in its pod manifest, see placeOf.
func (e Expectation) place() string {
	kind := manifests.KindContainer
	if e.Init {
		kind = manifests.KindInit
	}
	return placeOf(manifests.Image{Kind: kind, Container: e.Container})
}

// proved are the containers of a step whose expectations were met.
func (s Step) proved() []Proved {
	var out []Proved
	for _, e := range s.Apply.Expect {
		out = append(out, Proved{e.Container, e.place(), Pin{e.Ref.Repository, e.Digest}, e.Config})
	}
	return out
}

// rollBack makes the step that brings a pod to its override. What the node has
// against restarting pods does not hold it: the pod does not run well as it is.
func (d *decider) rollBack(v podView) (Step, bool) {
	if !v.override.Pending || v.err != nil || d.inv.Busy != "" { // one without a file is not pending
		return Step{}, false
	}
	s, err := stepTo(v.override, *v.disk, v.template != nil, d.inv, d.names)
	return s, err == nil
}

// stepTo is the step that brings a pod from a pod manifest to an override. ours: it has
// a template. names are those of all static pods.
func stepTo(o Override, disk PodFile, ours bool, inv Inventory, names []string) (Step, error) {
	pod, err := manifests.Parse([]byte(o.Data))
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	was, err := disk.Parse()
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	s := Step{Do: StepRollBack, File: disk.Name, Was: disk, Data: []byte(o.Data), Ours: ours}
	s.Apply = about(was, pod, inv, names)
	s.Apply.Aside = string(disk.Data) != o.Data
	containers := inv.podContainers(pod.Namespace, pod.Name, names)
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		kind, name, _ := strings.Cut(place, " ")
		e := o.Images[place].expected(manifests.Kind(kind), name, containers)
		e.OnNode, e.Anew = true, s.Apply.Aside
		s.Apply.Expect = append(s.Apply.Expect, e)
	}
	return s, nil
}

// strayed reports whether a pod that was rolled back has got another pod manifest,
// as by a rollback of the system, by which kubelet starts what is denied, and does not
// run yet: nobody's yes is needed to bring it back. What follows anything else is
// somebody's edit.
func (d *decider) strayed(v *podView) bool {
	o := v.override
	if v.err != nil || v.template == nil || v.disk == nil || o.Data == "" || o.Data == string(v.disk.Data) {
		return false
	}
	containers := d.inv.podContainers(v.was.Namespace, v.was.Name, d.names)
	return slices.ContainsFunc(v.was.Images, func(i manifests.Image) bool {
		_, ours := o.Images[placeOf(i)]
		c := container(containers, i.Container)
		ref, _ := ParseReference(i.Reference)
		_, denied := d.rec.Denies(d.lastSeen(ref))
		return ours && denied && pulled(i) && i.Kind == manifests.KindContainer && (c == nil || !c.Running)
	})
}

// prove makes the step that proves what a pod runs by nobody's approval: kubelet
// took it by itself, or an apply was cut short.
func (d *decider) prove(v podView, p PodPlan) (Step, bool) {
	if p.Err != nil || v.disk == nil {
		return Step{}, false
	}
	s := Step{Do: StepProve, File: v.file, Was: *v.disk, Apply: about(v.was, v.pod, d.inv, d.names)}
	s.Apply.Offer = p.ID
	if pod, err := v.disk.Parse(); err == nil {
		s.Apply.asRuns(pod)
	}
	containers := d.inv.podContainers(v.pod.Namespace, v.pod.Name, d.names)
	unproved := false
	for _, i := range p.Images {
		img := i.Want.Image
		if !isContainer(img) || i.Want.Ask.Repository == "" || i.Running.Digest == "" {
			continue
		}
		g := d.rec.Good[goodKey(v.file, img.Container)]
		unproved = unproved || g.Running != "" && !d.runsGood(i, g)
		s.Apply.Expect = append(s.Apply.Expect, i.is().expected(img.Kind, img.Container, containers))
	}
	f := d.rec.Failed[v.file]
	if !unproved || f.isOf(s.Apply) && !d.steady(p, containers) {
		return Step{}, false
	}
	d.back(v, &s)
	return s, true
}

// runsGood reports whether an image runs what ran well.
func (d *decider) runsGood(i ImagePlan, g Good) bool {
	return d.rec.IsGood(g, i.Want.Ask.Repository, i.Running.Digest, i.Config)
}

// steady reports that a pod that did not come up has run for as long as a proof
// takes.
func (d *decider) steady(p PodPlan, containers []Container) bool {
	for _, i := range p.Images {
		c := container(containers, i.Want.Image.Container)
		if isContainer(i.Want.Image) && i.Want.Ask.Repository != "" &&
			(!i.Well || c == nil || d.isYoung(*c)) {
			return false
		}
	}
	return true
}

// isYoung reports that a container has not run for as long as a proof takes. One
// from the future was started under a wrong clock.
func (d *decider) isYoung(c Container) bool {
	age := d.now.Sub(c.StartedAt)
	return age >= 0 && age < d.policy.Settle
}

// isOf reports whether a failure is of what a pod runs.
func (f Failure) isOf(p Apply) bool {
	runs := strings.Fields(p.runs())
	return f.Runs != "" && !slices.ContainsFunc(strings.Fields(f.Runs), func(one string) bool {
		return !slices.Contains(runs, one)
	})
}

// runs names what is expected of a pod's containers.
func (p Apply) runs() string {
	var out []string
	for _, e := range p.Expect {
		out = append(out, e.Container+"="+e.Digest.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
