// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

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

// PinnedFor returns the image that an override pins for an expected container.
func PinnedFor(o record.Override, e Expectation) (record.PinnedImage, bool) {
	at, ok := o.Images[e.Place()]
	return at, ok
}

// Place returns the place of the container, see node.PlaceOf.
func (e Expectation) Place() string {
	kind := manifests.KindContainer
	if e.Init {
		kind = manifests.KindInit
	}
	return node.PlaceOf(manifests.Image{Kind: kind, Container: e.Container})
}

// Healthy returns the containers whose expectations were met: all but the broken ones.
func (s Step) Healthy(broken ...string) []record.Healthy {
	var out []record.Healthy
	for _, e := range s.Apply.Expect {
		if slices.Contains(broken, e.Container) {
			continue
		}
		out = append(out, record.Healthy{
			Container: e.Container, Place: e.Place(), Config: e.Config,
			Pin: release.Pin{Repository: e.Ref.Repository, Digest: e.Digest},
		})
	}
	return out
}

// rollBack returns the step for a pending override. Holds do not delay it: the pod has failed.
func (f *facts) rollBack(v follow.PodView) (Step, bool) {
	if !v.Override.Pending || v.Err != nil || v.ReadOnly != nil || f.inv.Busy != "" {
		return Step{}, false
	}
	s, err := StepTo(v.Override, *v.Disk, v.Template != nil, f.pods, f.names)
	return s, err == nil
}

// StepTo returns the step from a pod manifest to an override. ours: it has a template. names are those of all static
// pods.
func StepTo(o record.Override, disk node.PodFile, ours bool, pods node.ByPod, names []string) (Step, error) {
	pod, err := manifests.Parse([]byte(o.Data))
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	was, err := disk.Parse()
	if err != nil {
		return Step{}, fmt.Errorf("%s: %w", disk.Name, err)
	}
	s := Step{Do: StepRollBack, File: disk.Name, Was: disk, Data: []byte(o.Data), Ours: ours}
	s.Apply = newApply(was.Pod, pod.Pod, pods, names)
	s.Apply.Aside, s.Apply.Broken = string(disk.Data) != o.Data, o.Broken
	containers := pods.Containers(pod.Namespace, pod.Name)
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		kind, name, _ := strings.Cut(place, " ")
		if slices.Contains(o.Broken, name) {
			continue
		}
		e := expectation(o.Images[place], manifests.Kind(kind), name, containers)
		e.OnNode, e.Anew = true, s.Apply.Aside
		s.Apply.Expect = append(s.Apply.Expect, e)
	}
	return s, nil
}

// needsRestore reports whether another pod manifest replaced the one of a rollback, as a rollback of the system does,
// so that kubelet would start a denied release. It needs no approval while the container does not run. Other
// differences are edits by a person.
func (f *facts) needsRestore(v *follow.PodView) bool {
	o := v.Override
	if v.Err != nil || v.Template == nil || v.Disk == nil || o.Data == "" || o.Data == string(v.Disk.Data) {
		return false
	}
	containers := f.pods.Containers(v.Was.Namespace, v.Was.Name)
	return slices.ContainsFunc(v.Was.Images, func(i manifests.Image) bool {
		_, ours := o.Images[node.PlaceOf(i)]
		c := node.FindContainer(containers, i.Container)
		ref, _ := release.ParseReference(i.Reference)
		_, denied := f.rec.Denies(f.lastSeen(ref))
		return ours && denied && node.Pulled(i) && i.Kind == manifests.KindContainer && (c == nil || !c.Running)
	})
}

// verify returns the step that verifies releases that run without a health check: kubelet started them,
// or an apply was interrupted.
func (f *facts) verify(v follow.PodView, p PodPlan) (Step, bool) {
	if p.Err != nil || v.Disk == nil {
		return Step{}, false
	}
	var expect []Expectation
	var broken []string
	containers := f.pods.Containers(v.Pod.Namespace, v.Pod.Name)
	unverified := false
	for _, i := range p.Images {
		img := i.Want.Image
		if i.mustRun() && !i.Well && f.wasDown(v.File, i) {
			broken = append(broken, img.Container)
			continue
		}
		if !node.IsContainer(img) || i.Want.Ask.Repository == "" || i.Running.Digest == "" {
			continue
		}
		g := f.rec.Good[record.GoodKey(v.File, img.Container)]
		unverified = unverified || g.Running != "" && !f.runsGood(i, g)
		expect = append(expect, expectation(i.runningImage(), img.Kind, img.Container, containers))
	}
	failure := f.rec.Failed[v.File]
	is := Apply{Expect: expect}
	if !unverified || f.isUnchecked(v.File, is) || isFailureOf(failure, is) && !f.ranLongEnough(p, containers) {
		return Step{}, false
	}
	s := Step{Do: StepVerify, File: v.File, Was: *v.Disk, Apply: newApply(v.Was, v.Pod, f.pods, f.names)}
	s.Apply.Offer, s.Apply.Expect, s.Apply.Broken = p.ID, expect, broken
	if pod, err := v.Disk.Parse(); err == nil {
		s.Apply.useRunningPod(pod.Pod)
	}
	f.rollbackTarget(v, &s)
	return s, true
}

// wasDown reports whether a container did not run before the release that its pod runs now.
func (f *facts) wasDown(file string, i ImagePlan) bool {
	if approval, interrupted := f.rec.Approved[file]; interrupted {
		return !approval.HasRun(i.Want.Image.Container)
	}
	g := f.rec.Good[record.GoodKey(file, i.Want.Image.Container)]
	return g.Down && f.runsGood(i, g)
}

// uncheckedPause is the time from one health check that could not verify a pod to the next.
const uncheckedPause = time.Hour

// isUnchecked reports whether the pod could not be verified a short time ago.
func (f *facts) isUnchecked(file string, p Apply) bool {
	is := f.rec.Unchecked[file]
	age := f.now.Sub(is.At)
	return is.Running != "" && is.Running == p.Runs() && age >= 0 && age < uncheckedPause
}

// runsGood reports whether an image runs its last known good release.
func (f *facts) runsGood(i ImagePlan, g record.Good) bool {
	return f.rec.IsGood(g, i.Want.Ask.Repository, i.Running.Digest, i.Config)
}

// ranLongEnough reports whether a failed pod has meanwhile run as long as a health check takes.
func (f *facts) ranLongEnough(p PodPlan, containers []node.Container) bool {
	for _, i := range p.Images {
		c := node.FindContainer(containers, i.Want.Image.Container)
		if node.IsContainer(i.Want.Image) && i.Want.Ask.Repository != "" &&
			(!i.Well || c == nil || f.isYoung(*c)) {
			return false
		}
	}
	return true
}

// isYoung reports whether a container has run for less than a health check takes. A start in the
// future means that the clock was wrong.
func (f *facts) isYoung(c node.Container) bool {
	age := f.now.Sub(c.StartedAt)
	return age >= 0 && age < f.policy.Settle
}

// isFailureOf reports whether a recorded failure is about the digests that the pod runs.
func isFailureOf(f record.Failure, p Apply) bool {
	runs := strings.Fields(p.Runs())
	return f.Running != "" && !slices.ContainsFunc(strings.Fields(f.Running), func(one string) bool {
		return !slices.Contains(runs, one)
	})
}

// Runs returns the expected digests as one text.
func (p Apply) Runs() string {
	var out []string
	for _, e := range p.Expect {
		out = append(out, e.Container+"="+e.Digest.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
