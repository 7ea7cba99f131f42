// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

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

// Rollback is a person's rollback of one pod.
type Rollback struct {
	Pod   PodPlan
	To    *record.Override // the rollback target; nil if unknown
	Edits []status.Edit
	// Together are the pod manifests that are rolled back with it, because they run the same set.
	Together []string
	Missing  []record.PinnedImage // the images of To that are not complete on the node
	Err      error                // why the target is unknown, or why the pod is held
}

// Rollbacks plans a person's rollback of pods: the selected images return to their last known good releases. It skips
// pods whose files are gone. It is pure.
func Rollbacks(
	inv node.Inventory, rec record.Record, p policy.Policy, now time.Time, pods []PodPlan, which Which,
) []Rollback {
	f, views := observed(inv, nil, rec, p, now)
	var out []Rollback
	for _, pod := range pods {
		at := slices.IndexFunc(views, func(v follow.PodView) bool { return v.File == pod.File })
		if at < 0 {
			continue
		}
		r := Rollback{Pod: pod, Err: pod.Err}
		if twice := views[at].Duplicate; twice.Is() && r.Err == nil {
			r.Err = &release.HoldError{Hold: status.HoldDuplicate, Err: errors.New(twice.String())}
		}
		if set := rec.SetOf(pod.File); set != "" && r.Err == nil { // the previous releases of its pods are not one set
			r.Err = &release.HoldError{Hold: status.HoldSet, Err: fmt.Errorf(
				"an apply of %s is running; wait for its end, or hold the images that it has not reached yet", set,
			)}
		}
		if r.Err == nil {
			r.To, r.Err = f.byPerson(views[at], pod, which)
		}
		rest := cmp.Or(f.runsWith(pod, pods, which), f.mayRunWith(views[at], views, pods, which))
		if r.Err == nil && r.To != nil && rest != "" {
			r.Err = &release.HoldError{Hold: status.HoldSet, Err: errors.New(rest)}
		}
		if r.To != nil {
			r.Edits, r.Missing = rollbackEdits(*r.To, pod), f.missing(*r.To)
		}
		for _, files := range f.setsThatRun(pod, which) {
			r.Together = mergeSorted(r.Together, files)
		}
		out = append(out, r)
	}
	f.holdHalfRollbacks(out, which)
	return out
}

// byPerson returns an override that returns the named images to their last known good releases and keeps the others;
// nil if no target is known. Images that CRI does not show are kept. A person's pending rollback is completed as it is.
func (f *facts) byPerson(v follow.PodView, p PodPlan, which Which) (*record.Override, error) {
	if v.Disk == nil {
		return nil, nil
	}
	running := map[string]digest.Digest{}
	for _, i := range p.Images {
		named := which.has(p.File, i)
		if node.IsContainer(i.Want.Image) && named {
			running[i.Want.Image.Container] = i.Running.Digest
		}
	}
	another := false
	o, err := f.overrideTo(v, func(container string, g record.Good) release.Pin {
		if at, is := f.returning(v, p, container); is {
			another = true
			return at
		}
		at, is := f.goodBefore(g, running[container])
		another = another || is
		return at
	})
	if err != nil || !another {
		return nil, err
	}
	o.Reason, o.ByHand, o.From = record.ByHand, true, digest.FromBytes(v.Disk.Data)
	broken := f.notRunningBefore(v, p)
	for _, i := range p.Images {
		name, stays := i.Want.Image.Container, o.Images[node.PlaceOf(i.Want.Image)].Digest == i.Running.Digest
		if stays && slices.Contains(broken, name) {
			o.Broken = append(o.Broken, name)
		}
	}
	return &o, nil
}

// goodBefore returns the newest known good release that is not the running one and not denied; otherwise, and if it is
// not known what runs, the last known good one, and false.
func (f *facts) goodBefore(g record.Good, running digest.Digest) (release.Pin, bool) {
	last := release.Pin{Repository: g.Repository, Digest: g.Running}
	if running == "" {
		return last, false
	}
	for _, pin := range append([]release.Pin{last}, g.Before...) {
		_, denied := f.rec.Denied[release.Key(pin.Repository, pin.Digest)]
		if pin.Digest != running && !denied {
			return pin, pin.Digest != ""
		}
	}
	return last, false
}

// returning returns the release to which a person has begun to roll a container back.
func (f *facts) returning(v follow.PodView, p PodPlan, container string) (release.Pin, bool) {
	if o := v.Override; o.Pending && o.ByHand {
		for _, i := range p.Images {
			at, is := o.Images[node.PlaceOf(i.Want.Image)]
			if is && i.Want.Image.Container == container && at.Digest != i.Running.Digest {
				return at.Pin, true
			}
		}
	}
	return release.Pin{}, false
}

// rollbackEdits returns the images that an override changes.
func rollbackEdits(o record.Override, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		at, ok := o.Images[node.PlaceOf(i.Want.Image)]
		if ok && at.Digest != i.Running.Digest {
			out = append(out, status.Edit{
				Container: i.Want.Image.Container, Field: status.EditImage,
				From: cmp.Or(i.Running.Tag, string(i.Running.Digest)), To: at.Tag,
			})
		}
	}
	return out
}

// runsWith returns the other pods that run the same set as the named images of a pod and are not selected; "" if there
// are none.
func (f *facts) runsWith(p PodPlan, selected []PodPlan, which Which) string {
	if which.All {
		return ""
	}
	sets := f.setsThatRun(p, which)
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		for _, other := range sets[set] {
			if !isAmong(selected, other) {
				return fmt.Sprintf("%s is rolled back as a whole: also name %s", set, other)
			}
		}
	}
	return ""
}

// mayRunWith returns, if the catalog was never read, the other pods that may run the same set as a pod and are not
// selected: all pods bound to digests of a catalog; "" if there are none.
func (f *facts) mayRunWith(v follow.PodView, views []follow.PodView, selected []PodPlan, which Which) string {
	l := f.inv.Catalog
	if which.All || l.Catalog == "" || l.Version > 0 || len(v.Bound) == 0 {
		return ""
	}
	for _, other := range views {
		if len(other.Bound) > 0 && !isAmong(selected, other.File) {
			return fmt.Sprintf("sets are unknown until %s is read: run check first, or also name %s", l.Catalog, other.File)
		}
	}
	return ""
}

// setsThatRun returns the sets of the named images of a pod, each with the pod manifests that run its releases.
func (f *facts) setsThatRun(p PodPlan, which Which) map[string][]string {
	out := map[string][]string{}
	for _, i := range p.Images {
		is, _ := f.inv.Catalog.Find(i.Want.Ask.Repository, i.Running.Digest)
		if which.has(p.File, i) && is.Set != "" {
			out[is.Set] = append(out[is.Set], f.runsAny(f.inv.Catalog.MembersOf(i.Want.Ask.Repository, is))...)
		}
	}
	return out
}

// holdHalfRollbacks holds the rollback of a pod if another pod with the same set is not rolled back.
func (f *facts) holdHalfRollbacks(all []Rollback, which Which) {
	why := func(n int) string { return f.staysOf(all[n], all, which) }
	untilStable(len(all), why, func(n int, why string) {
		all[n].Err = &release.HoldError{Hold: status.HoldSet, Err: errors.New(why)}
	})
}

// staysOf returns why another pod with the same set is not rolled back; "" if all are, or if the pod itself is not.
func (f *facts) staysOf(r Rollback, all []Rollback, which Which) string {
	if r.Err != nil || r.To == nil {
		return ""
	}
	sets := f.setsThatRun(r.Pod, which)
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		for _, other := range all {
			switch {
			case !slices.Contains(sets[set], other.Pod.File):
			case other.Err != nil:
				return fmt.Sprintf("%s is rolled back as a whole: %s: %s", set, other.Pod.File, other.Err)
			case other.To == nil:
				return fmt.Sprintf("%s is rolled back as a whole, but %s has no previous release", set, other.Pod.File)
			case f.rec.Overrides[other.Pod.File].Pending && f.isToSet(*other.To, set):
				return fmt.Sprintf("%s is rolled back as a whole, but %s has not returned to it yet", set, other.Pod.File)
			}
		}
	}
	return ""
}

// isToSet reports whether an override returns a pod to a set.
func (f *facts) isToSet(o record.Override, set string) bool {
	for _, at := range o.Images {
		if is, _ := f.inv.Catalog.Find(at.Repository, at.Digest); is.Set == set {
			return true
		}
	}
	return false
}

// runsAny returns the pod manifests with a container that runs one of these releases: the last known good one, or the
// pin of a rollback that has not passed its health check.
func (f *facts) runsAny(refs []release.Reference) []string {
	isOne := func(repository string, d digest.Digest) bool {
		is, _ := f.inv.Catalog.Find(repository, d)
		return slices.Contains(refs, release.Reference{Repository: repository, Tag: is.Tag})
	}
	var out []string
	for key, g := range f.rec.Good {
		if file, _, _ := strings.Cut(key, "/"); isOne(g.Repository, g.Running) {
			out = append(out, file)
		}
	}
	for file, o := range f.rec.Overrides {
		for _, at := range o.Images {
			if isOne(at.Repository, at.Digest) {
				out = append(out, file)
			}
		}
	}
	out = slices.DeleteFunc(out, func(file string) bool { return f.onDisk[file] == nil })
	slices.Sort(out)
	return slices.Compact(out)
}
