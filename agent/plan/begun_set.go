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
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// BegunSet is the state of a set whose pods have begun to restart.
type BegunSet struct {
	Name string
	// Ended: all of its pods run it, or none does.
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

// begunSets decides about the sets whose pods have begun to restart, and continues those that can be completed.
func (f *facts) begunSets(views []follow.PodView, pods []PodPlan) []BegunSet {
	var out []BegunSet
	for _, name := range slices.Sorted(maps.Keys(f.rec.Sets)) {
		out = append(out, f.begunSet(name, f.rec.Sets[name], views, pods))
	}
	return out
}

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
			f.goOn(podOf(pods, file))
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

// goOn applies a pod because another pod of its set was applied. It waits only for the fleet lock.
func (f *facts) goOn(p *PodPlan) {
	p.GoesOn, p.Waits = true, f.waitsForLock(p)
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
