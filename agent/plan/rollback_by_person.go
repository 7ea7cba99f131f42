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
)

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
	untilStable(len(all), func(n int) (changed bool) {
		why := f.staysOf(all[n], all, which)
		if why != "" {
			all[n].Err = &release.HoldError{Hold: status.HoldSet, Err: errors.New(why)}
		}
		return why != ""
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
