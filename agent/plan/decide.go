// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Decide makes the plan of one cycle. It is pure: the same arguments give the
// same plan, and it changes none of them.
func Decide(
	inv node.Inventory, offers map[release.Question]source.Offer, rec record.Record, p policy.Policy, now time.Time,
) Plan {
	f, views := observed(inv, offers, rec, p, now)
	plan := Plan{Names: f.names}
	pods := podPlanner{imagePlanner{f}}
	for _, v := range views {
		plan.Pods = append(plan.Pods, pods.pod(v))
	}
	pods.skew(plan.Pods)
	for _, r := range p.Images {
		plan.Tracked = append(plan.Tracked, pods.tracked(offers[release.Question{Repository: r.Repository, Tag: r.Tag}]))
	}
	plan.Steps = stepPlanner{f}.steps(views, plan)
	return plan
}

// facts are the arguments of Decide, and what all pods together tell.
type facts struct {
	inv    node.Inventory
	offers map[release.Question]source.Offer
	rec    record.Record
	policy policy.Policy
	now    time.Time
	names  []string        // of all static pods, to tell them apart
	urgent map[string]bool // releases (repository@digest) that no pod waits for
}

// The planners plan from the facts: an image, the pod that has it, the steps that follow,
// what restarts a pod, and what is done before kubelet starts.
type (
	imagePlanner   struct{ *facts }
	podPlanner     struct{ imagePlanner }
	stepPlanner    struct{ *facts }
	restartPlanner struct{ *facts }
	bootPlanner    struct{ podPlanner }
)

// observed are the facts, and the pod manifests with what each follows.
func observed(
	inv node.Inventory, offers map[release.Question]source.Offer, rec record.Record, p policy.Policy, now time.Time,
) (*facts, []follow.PodView) {
	views := follow.ReadPods(inv, rec.Overrides, p)
	f := &facts{inv: inv, offers: offers, rec: rec, policy: p, now: now}
	for _, v := range views {
		if v.Err == nil {
			f.names = append(f.names, v.Pod.Name)
			if v.Disk != nil && v.Was.Name != v.Pod.Name {
				f.names = append(f.names, v.Was.Name)
			}
		}
	}
	restarts := restartPlanner{f}
	for n := range views {
		views[n].Override.Pending = views[n].Override.Pending || restarts.needsRestore(&views[n])
	}
	return f, views
}

// tracked plans an image that no pod manifest names: nothing runs that its rules
// could compare it with.
func (ip imagePlanner) tracked(o source.Offer) ImagePlan {
	i := ImagePlan{Offer: o}
	if !o.Unresolved() {
		ip.target(follow.Want{}, &i, ip.policy.RuleFor(o.Repository), "")
	}
	i.Staged = ip.isStaged(i.Target)
	one := []ImagePlan{i}
	one[0].Holds = ip.diskHolds(one)
	return one[0]
}

// pod plans one pod manifest.
func (pp podPlanner) pod(v follow.PodView) PodPlan {
	p := PodPlan{File: v.File, Pod: v.Pod.Name, Err: v.Err}
	if v.Err != nil {
		return p
	}
	containers := pp.inv.PodContainers(v.Pod.Namespace, v.Pod.Name, pp.names)
	for _, w := range v.Wants {
		p.Images = append(p.Images, pp.image(v, w, containers))
		if w.Left != "" {
			p.Left = append(p.Left, left([]manifests.Image{w.Image})...)
		}
	}
	switch {
	case v.Override.Pending:
		// It is brought to that first.
		p.clearChanges()
		if pp.inv.Busy != "" {
			p.Holds = append(p.Holds, status.Hold{Name: status.HoldBusy, Reason: pp.inv.Busy, Grain: pp.inv.BusyGrain})
		}
		return p
	case pp.planOrphan(v, &p):
		// Its template is gone: nothing of it is offered any more.
	case pp.withhold(&p):
		// Rule 2: one unresolved image withholds the whole pod.
		p.clearChanges()
	case !v.Managed:
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldUnmanaged, Reason: v.Unmanaged()})
	default:
		pp.render(v, &p)
	}
	pp.summarize(v, &p)
	return p
}

// withhold holds a pod back whose images are not all known.
func (pp podPlanner) withhold(p *PodPlan) bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.Unresolved() {
			p.Holds = append(p.Holds, status.Hold{
				Name: status.HoldWithheld, Image: i.Want.Ask.Repository, Reason: fmt.Sprintf("%s: %v", i.Want.Ask, i.Offer.Err),
			})
		}
	}
	return len(p.Holds) > 0
}

// planOrphan plans a pod manifest of ours whose template is gone. Without any
// template at all nothing is concluded: the package may just not be there.
func (pp podPlanner) planOrphan(v follow.PodView, p *PodPlan) bool {
	_, ours := pp.rec.Wrote[v.File]
	if v.Template != nil || !ours || pp.policy.Manage[v.File] || len(pp.inv.Templates) == 0 {
		return false
	}
	if !pp.unedited(*v.Disk) {
		p.Holds = append(p.Holds, status.Hold{
			Name: status.HoldEdited, Reason: "its template is gone, but the file was edited since we wrote it",
		})
		p.clearChanges()
		return true
	}
	p.clearChanges()
	p.Change = policy.ChangeRemove
	return true
}

// clearChanges takes back what the images alone would offer.
func (p *PodPlan) clearChanges() {
	for n := range p.Images {
		p.Images[n].Change = ""
	}
}

// render makes the wanted pod manifest and compares it with the one on disk.
func (pp podPlanner) render(v follow.PodView, p *PodPlan) {
	var tags []tagAt
	for _, i := range p.Images {
		if i.Want.Image.Document == 0 { // a later one has the same paths, and is not edited
			tags = append(tags, tagAt{i.Want.Image.Path, i.Target.Tag})
		}
	}
	w := renderInput{
		overrides: manifests.Overrides{Rewrites: pp.policy.Rewrites, PullPolicy: v.PullPolicy(pp.policy)},
		tags:      tags,
	}
	places, all := unreplacedPlaces(&v, p)
	if all && v.Template != nil && isStillWanted(v.Override, p) {
		w.text = v.Override.Data
	} else {
		w.pins = v.Override.Pins(places)
	}
	out, err := render(v.Source().Data, v.Disk, w)
	if out.wanted != nil {
		p.Wanted, p.Left = out.wanted, out.left
	}
	p.Waiting, p.Err = out.waiting, err
}

// summarize draws the pod's change, its offer's identity and its readiness.
func (pp podPlanner) summarize(v follow.PodView, p *PodPlan) {
	if p.Err != nil || p.Withheld() {
		return
	}
	staged := true
	for _, i := range p.Images {
		if policy.ChangeRank[i.Change] > policy.ChangeRank[p.Change] {
			p.Change = i.Change
		}
		staged = staged && (i.Target.Digest == "" || i.Staged)
	}
	pp.offerConversion(p)
	p.ID = p.identity()
	if pp.wantsStaged(*p) {
		p.Holds = append(p.Holds, pp.diskHolds(p.Images)...)
	}
	writes := p.Wanted != nil && !p.matches(node.Find(pp.inv.PodManifests, p.File))
	if pp.inv.Busy != "" && (p.Change != "" || writes) {
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldBusy, Reason: pp.inv.Busy, Grain: pp.inv.BusyGrain})
	}
	if p.Change != "" {
		if p.Change != policy.ChangeRemove {
			p.Edits = pp.edits(v, *p)
		}
		p.Holds = append(p.Holds, pp.inv.Against...)
		pp.addHolds(p)
		pp.addWaits(p)
		pp.pullHazardHolds(v, p)
		p.Offer = p.ID
		p.Ready = staged || p.Change == policy.ChangeRemove
	}
}

// offerConversion offers what changes the pod manifest alone, unless the restart that it
// needs would start what a rule refuses.
func (pp podPlanner) offerConversion(p *PodPlan) {
	if p.Change == "" && p.Waiting {
		p.Change = policy.ChangeConvert
	}
	if p.Change != policy.ChangeConvert {
		return
	}
	refused := false
	for n := range p.Images {
		rel := p.Images[n].Target
		if no, is := pp.rec.Refuses(rel, pp.policy.RuleFor(rel.Repository)); is && rel.Digest != "" {
			p.Images[n].refuse(no)
			refused = true
		}
	}
	if refused {
		p.clearChanges()
		p.Change, p.Wanted, p.Waiting = "", nil, false
	}
}

// identity names what the pod is to be, and nothing of what it is: it does not
// change while an apply is under way.
func (p *PodPlan) identity() string {
	id := sha256.New()
	fmt.Fprintf(id, "%s\n", p.File)
	if p.Change == policy.ChangeRemove {
		fmt.Fprintln(id, policy.ChangeRemove)
		return hex.EncodeToString(id.Sum(nil))
	}
	for _, i := range p.Images {
		if i.Target.Digest != "" {
			fmt.Fprintf(id, "%s %s %s\n", i.Want.Image.Path, i.Target.Tag, i.Target.Digest)
		}
	}
	id.Write(p.Wanted)
	return hex.EncodeToString(id.Sum(nil))
}

func (p *PodPlan) Withheld() bool {
	return p.isHeld(status.HoldWithheld) || p.isHeld(status.HoldEdited)
}

func (p *PodPlan) isHeld(name string) bool {
	return slices.ContainsFunc(p.Holds, func(h status.Hold) bool { return h.Name == name })
}

// matches reports whether the rendered file is the one on disk to the byte.
func (p *PodPlan) matches(disk *node.PodFile) bool {
	return disk != nil && bytes.Equal(disk.Data, p.Wanted)
}
