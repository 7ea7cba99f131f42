// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// holdSets makes the pods of a set wait for each other: releases that the set lacks on this node, and holds of one pod,
// hold them all. A delay of one pod's automatic apply delays them all.
func (f *facts) holdSets(pods []PodPlan) {
	sets := f.setsOf(pods)
	linked := linkedPods(sets)
	takeAlong(pods, sets, linked)
	lacked := f.lackedBySets(pods)
	holds, waits := make([][]status.Hold, len(pods)), make([][]status.Hold, len(pods))
	for n := range pods {
		// Copies, so that additions for one pod do not count for the next one.
		holds[n], waits[n] = slices.Clone(pods[n].Holds), slices.Clone(pods[n].Waits)
	}
	for n := range pods {
		if len(sets[n]) == 0 {
			continue
		}
		for _, set := range sets[n] {
			if lacks := lacked.lacks[set]; len(lacks) > 0 {
				pods[n].holdForSet(fmt.Sprintf("%s: %s", set, strings.Join(lacks, ", ")))
			}
			if unverified := lacked.unverified[set]; len(unverified) > 0 {
				h := pods[n].holdForSet(fmt.Sprintf("%s: not verified healthy yet: %s", set, strings.Join(unverified, ", ")))
				pods[n].passing = append(pods[n].passing, h)
			}
			pods[n].Sets = mergeSorted(pods[n].Sets, sets[n])
		}
		for m := range pods {
			if m != n && linked[m] == linked[n] {
				pods[n].Sets = mergeSorted(pods[n].Sets, sets[m])
				pods[n].Together = append(pods[n].Together, pods[m].File)
				pods[n].waitWith(pods[m].File, holds[m], waits[m])
			}
		}
	}
}

// takeAlong makes a set as severe as the most severe of its updates.
func takeAlong(pods []PodPlan, sets [][]string, linked []int) {
	isSevere := map[int]bool{}
	for n := range pods {
		isSevere[linked[n]] = isSevere[linked[n]] || len(sets[n]) > 0 && !pods[n].waitsFor(status.HoldSeverity)
	}
	for n := range pods {
		if isSevere[linked[n]] {
			pods[n].Waits = slices.DeleteFunc(pods[n].Waits, func(h status.Hold) bool { return h.Name == status.HoldSeverity })
		}
	}
}

func mergeSorted(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// SetName returns the name of the pod's sets, whose pods are all applied, or none; "" if it has none.
func (p *PodPlan) SetName() string { return strings.Join(p.Sets, ", ") }

// waitWith makes a pod wait for the holds and delays of another pod of its sets.
func (p *PodPlan) waitWith(file string, holds, waits []status.Hold) {
	reason := func(h status.Hold) string {
		return p.SetName() + ": " + file + " also waits: " + h.Name + ": " + h.Reason
	}
	for _, h := range holds {
		if !slices.Contains(p.Holds, h) {
			p.holdForSet(reason(h))
		}
	}
	for _, h := range waits {
		switch {
		case h.Name == status.HoldLock && p.waitsFor(status.HoldLock), slices.Contains(p.Waits, h):
		case h.Name == status.HoldLock: // one lock covers the set
			p.Waits = append(p.Waits, status.Hold{Name: status.HoldLock, Reason: reason(h), Until: h.Until})
		default:
			p.Waits = append(p.Waits, status.Hold{Name: status.HoldSet, Reason: reason(h), Until: h.Until, OnlyAuto: true})
		}
	}
}

func (p *PodPlan) waitsFor(name string) bool {
	return slices.ContainsFunc(p.Waits, func(h status.Hold) bool { return h.Name == name })
}

// HoldHalves holds the selected pods that must be applied together with an unselected one.
func HoldHalves(selected []PodPlan) []PodPlan {
	out := slices.Clone(selected)
	for n := range out {
		rest := slices.DeleteFunc(slices.Clone(out[n].Together), func(file string) bool { return isAmong(selected, file) })
		if len(rest) > 0 && out[n].Change != "" {
			out[n].Holds = slices.Clip(out[n].Holds)
			out[n].holdForSet(
				fmt.Sprintf("%s is applied as a whole: also name %s", out[n].SetName(), strings.Join(rest, ", ")),
			)
		}
	}
	return out
}

func isAmong(pods []PodPlan, file string) bool {
	return slices.ContainsFunc(pods, func(p PodPlan) bool { return p.File == file })
}

// setsOf returns the sets of each pod's changes, sorted: the sets of its offers, and the withdrawn sets that it leaves.
func (f *facts) setsOf(pods []PodPlan) [][]string {
	l := f.inv.Catalog
	of := map[release.Reference][]string{} // the sets that have a release among their members
	eachChange(pods, func(_ int, i ImagePlan) {
		is, _ := l.Find(i.Target.Repository, i.Target.Digest)
		for _, m := range l.MembersOf(i.Target.Repository, is) {
			of[m] = append(of[m], is.Set)
		}
	})
	out := make([][]string, len(pods))
	eachChange(pods, func(n int, i ImagePlan) {
		is, listed := l.Find(i.Target.Repository, i.Target.Digest)
		if listed {
			out[n] = append(out[n], of[release.Reference{Repository: i.Target.Repository, Tag: is.Tag}]...)
		}
		for m, sets := range of { // a replacement of a member makes the member's set wait for it
			if m.Repository == i.Want.Ask.Repository && !f.isAbove(m, i.Running.Digest, i.Running.Tag) &&
				f.isAbove(m, i.Target.Digest, i.Target.Name()) {
				out[n] = append(out[n], sets...)
			}
		}
		if was, _ := l.Find(i.Want.Ask.Repository, i.Running.Digest); was.Set != "" && was.Withdrawn != nil {
			out[n] = append(out[n], was.Set)
		}
	})
	for n := range out {
		slices.Sort(out[n])
		out[n] = slices.Compact(out[n])
	}
	return out
}

// eachChange calls do for each image that changes, with the number of its pod.
func eachChange(pods []PodPlan, do func(n int, i ImagePlan)) {
	for n, p := range pods {
		for _, i := range p.Images {
			if i.Change != "" {
				do(n, i)
			}
		}
	}
}

// linkedPods returns the same number for pods that are applied together: a pod of two sets links both.
func linkedPods(sets [][]string) []int {
	out := make([]int, len(sets))
	for n := range sets {
		if out[n] = n; len(sets[n]) == 0 {
			continue
		}
		for m := range n {
			if !slices.ContainsFunc(sets[n], func(s string) bool { return slices.Contains(sets[m], s) }) {
				continue
			}
			was, is := out[n], out[m]
			for k := range n + 1 {
				if out[k] == was {
					out[k] = is
				}
			}
		}
	}
	return out
}

func (p *PodPlan) holdForSet(reason string) status.Hold {
	h := status.Hold{Name: status.HoldSet, Reason: reason}
	if !slices.Contains(p.Holds, h) {
		p.Holds, p.Ready = append(p.Holds, h), false
	}
	return h
}

// setLacks are the obstacles of sets on this node, by set.
type setLacks struct {
	// lacks are releases that images of this node need and that are not staged, or must not be offered. The node needs
	// only releases of images that it runs.
	lacks map[string][]string
	// unverified are running releases that have not passed their health check: if one fails, it is rolled back, and
	// then no other release of its set may run.
	unverified map[string][]string
}

func addTo(by map[string][]string, set, text string) {
	if text != "" && !slices.Contains(by[set], text) {
		by[set] = append(by[set], text)
	}
}

// lackedBySets returns the obstacles for the sets of the pods' changes.
func (f *facts) lackedBySets(pods []PodPlan) setLacks {
	out, l := setLacks{map[string][]string{}, map[string][]string{}}, f.inv.Catalog
	eachChange(pods, func(_ int, i ImagePlan) {
		is, _ := l.Find(i.Target.Repository, i.Target.Digest)
		for _, m := range l.MembersOf(i.Target.Repository, is) {
			for _, p := range pods {
				f.addLacks(out, is.Set, m, p)
			}
		}
		if was, _ := l.Find(i.Want.Ask.Repository, i.Running.Digest); was.Set != "" && was.Withdrawn != nil {
			for _, why := range f.stayIn(was.Set, pods) {
				addTo(out.lacks, was.Set, why)
			}
		}
	})
	return out
}

// addLacks adds the obstacles of a pod for a member of a set.
func (f *facts) addLacks(out setLacks, set string, m release.Reference, p PodPlan) {
	if p.Err != nil && f.ranIn(p.File, m.Repository) {
		addTo(out.lacks, set, p.File+" cannot be read: "+m.String())
	}
	for _, i := range p.Images {
		if i.Want.Ask.Repository != m.Repository {
			continue
		}
		addTo(out.lacks, set, f.lacks(i, m))
		if f.runsUnverified(p.File, i) {
			addTo(out.unverified, set, m.String())
		}
	}
}

// runsUnverified reports whether an image runs its target, which is not known to be good.
func (f *facts) runsUnverified(file string, i ImagePlan) bool {
	g := f.rec.Good[record.GoodKey(file, i.Want.Image.Container)]
	return i.Change == "" && i.Running.Digest != "" && i.Running.Digest == i.Target.Digest && g.Running != "" &&
		!f.runsGood(i, g)
}

// ranIn reports whether a repository ran in a pod manifest that cannot be read.
func (f *facts) ranIn(file, repository string) bool {
	for key, g := range f.rec.Good {
		if of, _, _ := strings.Cut(key, "/"); of == file && g.Repository == repository {
			return true
		}
	}
	return false
}

// stayIn returns the running releases of a withdrawn set without a replacement.
func (f *facts) stayIn(set string, pods []PodPlan) []string {
	var out []string
	for _, p := range pods {
		for _, i := range p.Images {
			is, _ := f.inv.Catalog.Find(i.Want.Ask.Repository, i.Running.Digest)
			if is.Set == set && is.Withdrawn != nil && i.Change == "" {
				out = append(out, "no release is offered instead of "+i.Want.Ask.Repository+":"+is.Tag)
			}
		}
	}
	return out
}

// lacks returns why an image does not get a release that its set needs; "" if it gets that or a higher one.
func (f *facts) lacks(i ImagePlan, need release.Reference) string {
	is, at := f.inv.Catalog.ByTag(need)
	isTarget := at >= 0 && is.Digest == i.Target.Digest
	switch {
	case !isTarget && i.Change == "" && i.runsOther() && !f.isAbove(need, i.Running.Digest, i.Running.Tag):
		return "not offered: " + need.String()
	case !isTarget && f.isAbove(need, i.Target.Digest, i.Target.Name()):
		return ""
	case at < 0:
		return "no longer in the catalog: " + need.String()
	case is.Withdrawn != nil:
		return "withdrawn: " + need.String()
	case is.UnknownCritical() != "":
		return "needs a newer agent: " + need.String()
	case !isTarget, i.Change == "" && i.runsOther():
		return "not offered: " + need.String()
	case !i.Staged && (i.Change != "" || i.Running.Digest == ""):
		return "not staged: " + need.String()
	}
	return ""
}

// runsOther reports whether an image is known to run another release than its target.
func (i ImagePlan) runsOther() bool {
	isSame := i.Running.Digest == i.Target.Digest || i.Config != "" && i.Config == i.Target.Config
	return i.Running.Digest != "" && !isSame
}

// isAbove reports whether a release has the tag of a set's member, or a higher one.
func (f *facts) isAbove(member release.Reference, d digest.Digest, name string) bool {
	l, scheme := f.inv.Catalog, f.policy.RuleFor(member.Repository).Scheme
	is, _ := l.Find(member.Repository, d)
	_, at := l.ByTag(member)
	_, above := l.ByTag(release.Reference{Repository: member.Repository, Tag: cmp.Or(is.Tag, name)})
	return name == member.Tag || policy.IsLower(member.Tag, name, scheme) || above >= 0 && above <= at
}

// untilStable keeps each of count pods that has a reason to stay, until a round finds none: a pod that stays keeps the
// others of its sets, which keep those of theirs. A pod that is kept has no reason any more.
func untilStable(count int, why func(n int) string, keep func(n int, why string)) {
	for changed := true; changed; {
		changed = false
		for n := range count {
			if text := why(n); text != "" {
				keep(n, text)
				changed = true
			}
		}
	}
}

// BegunSet is the state of a set whose pods have begun to restart.
type BegunSet struct {
	Name string
	// Ended: all pods run the set, or none does.
	Ended bool
	// Undo are the pods to roll back, with their targets, because the other pods do not get the set.
	Undo map[string]record.Override
	// Stays are the pods without a rollback target, with the reason.
	Stays map[string]string
	// Why says why the other pods do not get the set.
	Why string
}

// The states of a pod of a begun set.
const (
	setApplied   = iota // runs its release of the set and passed its health check, or is gone
	setUntouched        // runs its previous release
	setReturning        // did not come up, or is rolled back with its set; its rollback is pending
	setBetween          // is restarting, or has not passed its health check yet
)

// begunSet decides about a set whose pods have begun to restart, and continues it if it can be completed.
func (f *facts) begunSet(name string, s record.BegunSet, views []follow.PodView, pods []PodPlan) BegunSet {
	by := map[int][]string{}
	out := BegunSet{Name: name}
	for _, file := range slices.Sorted(maps.Keys(s.Pods)) {
		p := podOf(pods, file)
		is := f.stateInSet(file, p, s.Pods[file])
		by[is] = append(by[is], file)
		switch {
		case out.Why != "":
		case is == setUntouched:
			out.Why = f.stopsSet(p, s.Pods[file])
		case is == setReturning:
			out.Why = file + ": " + f.rec.Overrides[file].Reason
		}
	}
	isMoving := len(by[setBetween])+len(by[setReturning]) > 0
	switch {
	case !isMoving && (len(by[setUntouched]) == 0 || len(by[setApplied]) == 0):
		out.Ended = true
	case out.Why != "":
		f.undo(&out, s, by[setApplied], views)
		out.Ended = !isMoving && len(out.Undo) == 0
	default:
		for _, file := range by[setUntouched] {
			// Another pod of its set was applied. It waits only for the fleet lock.
			p := podOf(pods, file)
			p.GoesOn, p.Waits = true, f.waitsForLock(p)
		}
	}
	return out
}

func podOf(pods []PodPlan, file string) *PodPlan {
	n := slices.IndexFunc(pods, func(p PodPlan) bool { return p.File == file })
	if n < 0 {
		return nil
	}
	return &pods[n]
}

// stateInSet returns the state of a pod in a begun set.
func (f *facts) stateInSet(file string, p *PodPlan, s record.SetPod) int {
	if p == nil {
		return setApplied
	}
	if f.rec.Overrides[file].Pending { // it did not come up
		return setReturning
	}
	applied, untouched := true, true
	if p.Err != nil { // the last known good release is known
		for place, to := range s.To {
			_, container, _ := strings.Cut(place, " ")
			applied = applied && f.rec.Good[record.GoodKey(file, container)].Running == to
		}
	}
	for _, i := range p.Images {
		to, wanted := s.To[node.PlaceOf(i.Want.Image)]
		if !wanted {
			continue
		}
		isHealthy := f.runsGood(i, f.rec.Good[record.GoodKey(file, i.Want.Image.Container)])
		applied = applied && i.Running.Digest == to && isHealthy
		untouched = untouched && i.Running.Digest != "" && i.Running.Digest != to
	}
	switch {
	case applied:
		return setApplied
	case untouched:
		return setUntouched
	}
	return setBetween
}

// stopsSet returns why a pod that was not restarted cannot get its release of the begun set; "" if it can, perhaps
// later.
func (f *facts) stopsSet(p *PodPlan, s record.SetPod) string {
	if p.Err != nil {
		return fmt.Sprintf("%s: %v", p.File, p.Err)
	}
	for _, i := range p.Images {
		to, wanted := s.To[node.PlaceOf(i.Want.Image)]
		if wanted && i.Target.Digest != to {
			return p.File + " would not get " + release.Key(i.Want.Ask.Repository, to)
		}
	}
	if failed, is := f.rec.Failed[p.File]; is && (failed.Offer == p.ID || failed.Running != "") {
		return p.File + ": " + failed.Reason
	}
	for _, h := range p.Holds {
		if !f.isPassing(h) && !slices.Contains(p.passing, h) {
			return p.File + ": " + h.Name + ": " + h.Reason
		}
	}
	if p.Offer == "" {
		return p.File + " has no update"
	}
	return ""
}

// isPassing reports whether a begun set waits for the end of a hold because the node is busy. It does not wait for
// people.
func (f *facts) isPassing(h status.Hold) bool {
	return h.Name == status.HoldBusy || slices.Contains(f.inv.RestartHolds, h)
}

// undo sets the rollback targets of the pods that run a set which the others do not get.
func (f *facts) undo(out *BegunSet, s record.BegunSet, files []string, views []follow.PodView) {
	out.Undo, out.Stays = map[string]record.Override{}, map[string]string{}
	for _, file := range files {
		at := slices.IndexFunc(views, func(v follow.PodView) bool { return v.File == file })
		if at < 0 || views[at].Disk == nil || views[at].Override.Pending {
			continue
		}
		v, before := views[at], s.Pods[file].Before
		o, err := f.overrideTo(v, func(container string, g record.Good) release.Pin {
			return cmp.Or(before[container], release.Pin{Repository: g.Repository, Digest: g.Running})
		})
		switch {
		case err != nil:
			out.Stays[file] = err.Error()
		case len(before) == 0 || len(o.Images) == 0:
			out.Stays[file] = "no other release is known to have run well"
		default:
			o.Set, o.From = out.Name, digest.FromBytes(v.Disk.Data)
			o.Reason = fmt.Sprintf("rolled back with its set %s: %s", out.Name, out.Why)
			out.Undo[file] = o.Replacing(f.namesIn(s.Pods[file], v))
		}
	}
}

// namesIn returns the names of the running releases of a pod in a set, by place.
func (f *facts) namesIn(s record.SetPod, v follow.PodView) map[string]string {
	out := map[string]string{}
	for _, w := range v.Wants {
		place := node.PlaceOf(w.Image)
		if to, is := s.To[place]; is {
			out[place] = cmp.Or(f.rec.NameOf(w.Ask.Repository, to), to.String())
		}
	}
	return out
}

// NewBegunSet returns the record for a set before its first restart. steps are the applies of all of its pods.
func NewBegunSet(steps []Step, rec record.Record) record.BegunSet {
	out := record.BegunSet{Pods: map[string]record.SetPod{}}
	for _, s := range steps {
		pod := record.SetPod{To: map[string]digest.Digest{}, Before: map[string]release.Pin{}}
		for _, e := range s.Apply.Expect {
			place := e.Place()
			g := rec.Good[record.GoodKey(s.File, e.Container)]
			if g.Running == e.Digest {
				continue
			}
			pod.To[place] = e.Digest
			if s.Apply.Rollback != nil {
				if at, is := s.Apply.Rollback.Images[place]; is {
					pod.Before[e.Container] = at.Pin
				}
			}
		}
		out.Pods[s.File] = pod
	}
	return out
}
