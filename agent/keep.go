// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
)

// noteGood keeps which digest each container runs, where it is the first one that
// is seen: any other counts only once it is proved, see noteProof.
func (r *Record) noteGood(plan Plan, keep int) {
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			repository, running := i.Want.Ask.Repository, i.Running.Digest
			key := goodKey(p.File, i.Want.Image.Container)
			g, known := r.Good[key]
			if repository == "" || running == "" || !i.Well || !known && i.Flaps || known && !r.runs(i, g) {
				continue
			}
			r.good(key, Good{
				Repository: repository, Running: running, Adopted: g.Adopted,
				Before: g.before(repository, running, keep),
			})
		}
	}
}

// isOpen reports whether a yes is still to be carried out, or to be proved.
func (r *Record) isOpen(p *PodPlan, yes Approval, now time.Time) bool {
	return p != nil && !p.isHeld(HoldAsked) && yes.stands(now) &&
		(p.Offer == yes.Offer || p.ID == yes.Offer && r.isUnproved(p))
}

// isUnproved reports whether a pod runs what is not known to run well.
func (r *Record) isUnproved(p *PodPlan) bool {
	return slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		g := r.Good[goodKey(p.File, i.Want.Image.Container)]
		return isContainer(i.Want.Image) && i.Running.Digest != "" && g.Running != "" && !r.runs(i, g)
	})
}

// runs reports whether an image runs what ran well: one image may have several
// digests, by indexes that differ in other platforms.
func (r *Record) runs(i ImagePlan, g Good) bool {
	if g.Repository != i.Want.Ask.Repository || g.Running == "" {
		return false
	}
	config := r.Releases[releaseKey(g.Repository, g.Running)].Config
	return g.Running == i.Running.Digest || config != "" && config == i.Config
}

// before are the ways back of what runs now, at most keep of them. One that runs
// again is no way back any more.
func (g Good) before(repository string, running digest.Digest, keep int) []Pin {
	var out []Pin
	for _, p := range append([]Pin{{g.Repository, g.Running}}, g.Before...) {
		if p.Digest != "" && p != (Pin{repository, running}) && len(out) < keep {
			out = append(out, p)
		}
	}
	return out
}

// forget drops what nothing needs any more, so that the record stays small.
func (r *Record) forget(plan Plan, offers map[Question]Offer, inv Inventory, now time.Time) {
	r.forgetPods(plan, inv, now)
	asked := map[string]bool{}
	for q := range offers {
		asked[q.String()], asked[q.Repository] = true, true
	}
	keep := r.inUse(plan, offers)
	deleteUnless(r.Offers, asked)
	deleteUnless(r.Sources, asked)
	deleteUnless(r.Lists, asked)
	deleteUnless(r.Releases, keep)
	deleteUnless(r.Signed, keep)
	deleteUnless(r.Unproved, keep)
	deleteUnless(r.Least, keep)
	r.forgetDenied(plan, offers, now)
	r.forgetOverrides(plan, inv)
	maps.DeleteFunc(r.Holds, func(_ string, h PersonHold) bool { return !h.stands(now) })
}

// forgetPods drops what is kept by pod manifest. Of one that cannot be read now
// all stays, but approvals: a yes is to what was seen. A hold takes a yes back,
// so that its end restarts nothing.
func (r *Record) forgetPods(plan Plan, inv Inventory, now time.Time) {
	pods := plan.byFile()
	for key := range r.Good {
		file, name, _ := strings.Cut(key, "/")
		if p := pods[file]; p == nil || (p.Err == nil && !p.has(name) && !onDisk(inv, file, name)) {
			delete(r.Good, key)
		}
	}
	for file, f := range r.Failed {
		p := pods[file]
		if p == nil || f.Runs == "" && (p.ID != "" && f.Offer != p.ID || p.well()) ||
			f.Runs != "" && p.allWell() && !r.isUnproved(p) {
			delete(r.Failed, file)
		}
	}
	maps.DeleteFunc(r.Approved, func(file string, yes Approval) bool { return !r.isOpen(pods[file], yes, now) })
	for file := range r.Wrote {
		if find(inv.PodManifests, file) == nil {
			delete(r.Wrote, file)
		}
	}
}

func (p *PodPlan) has(container string) bool {
	return slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return i.Want.Image.Container == container })
}

// onDisk reports whether kubelet's file still has a container that its template
// has no more.
func onDisk(inv Inventory, file, container string) bool {
	f := find(inv.PodManifests, file)
	if f == nil {
		return false
	}
	pod, err := manifests.Parse(f.Data)
	return err != nil || slices.ContainsFunc(pod.Images, func(i manifests.Image) bool { return i.Container == container })
}

// inUse are the releases that are offered, run (well or not: what is offered is
// judged against them), or are the way back.
func (r *Record) inUse(plan Plan, offers map[Question]Offer) map[string]bool {
	keep := map[string]bool{}
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			keep[releaseKey(i.Want.Ask.Repository, i.Running.Digest)] = true
		}
	}
	for _, o := range offers {
		for _, rel := range o.known() {
			keep[releaseKey(rel.Repository, rel.Digest)] = true
		}
	}
	for _, g := range r.Good {
		keep[releaseKey(g.Repository, g.Running)] = true
		for _, p := range g.Before {
			keep[releaseKey(p.Repository, p.Digest)] = true
		}
	}
	return keep
}

func deleteUnless[V any](m map[string]V, keep map[string]bool) {
	for k := range m {
		if !keep[k] {
			delete(m, k)
		}
	}
}
