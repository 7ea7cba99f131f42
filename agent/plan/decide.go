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

// Decide makes the plan of one cycle. It is pure.
func Decide(
	inv node.Inventory, offers map[release.Question]source.Offer, rec record.Record, p policy.Policy, now time.Time,
) Plan {
	f, views := observed(inv, offers, rec, p, now)
	plan := Plan{Names: f.names, Pods: make([]PodPlan, 0, len(views))}
	pods := podPlanner{imagePlanner{f}}
	for _, v := range views {
		plan.Pods = append(plan.Pods, pods.pod(v))
	}
	pods.skew(plan.Pods)
	holdSets(f, plan.Pods)
	for _, r := range p.Images {
		plan.Tracked = append(plan.Tracked, pods.tracked(offers[release.Question{Repository: r.Repository, Tag: r.Tag}]))
	}
	plan.Steps = stepPlanner{f}.steps(views, plan)
	return plan
}

// facts are the arguments of Decide and what follows from all pods together.
type facts struct {
	inv    node.Inventory
	offers map[release.Question]source.Offer
	rec    record.Record
	policy policy.Policy
	now    time.Time
	names  []string        // of all static pods
	urgent map[string]bool // releases (repository@digest) that are pulled without delay
}

// The planners share the facts. Each plans one kind of thing.
type (
	imagePlanner   struct{ *facts }
	podPlanner     struct{ imagePlanner }
	stepPlanner    struct{ *facts }
	restartPlanner struct{ *facts }
	bootPlanner    struct{ podPlanner }
)

// observed returns the facts and a view of each pod manifest.
func observed(
	inv node.Inventory, offers map[release.Question]source.Offer, rec record.Record, p policy.Policy, now time.Time,
) (*facts, []follow.PodView) {
	views := follow.ReadPods(inv, rec, p)
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

// tracked plans an image of the configuration that no pod manifest names.
func (ip imagePlanner) tracked(o source.Offer) ImagePlan {
	i := ImagePlan{Offer: o}
	if !o.IsUnresolved() {
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
		// The pending override is applied first.
		p.clearChanges()
		pp.holdIfBusy(&p)
		return p
	case pp.planOrphan(v, &p):
		// Its template is gone: only its removal is offered.
	case pp.withhold(&p):
		// One unresolved image withholds the whole pod.
		p.clearChanges()
	case !v.Managed:
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldUnmanaged, Reason: v.Unmanaged()})
	default:
		pp.render(v, &p)
	}
	pp.summarize(v, &p)
	return p
}

// withhold holds a pod with unresolved images.
func (pp podPlanner) withhold(p *PodPlan) bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.IsUnresolved() {
			p.Holds = append(p.Holds, status.Hold{
				Name: status.HoldWithheld, Image: i.Want.Ask.Repository, Reason: fmt.Sprintf("%s: %v", i.Want.Ask, i.Offer.Err),
			})
		}
	}
	return len(p.Holds) > 0
}

// planOrphan offers to remove a pod manifest of the agent whose template is gone. If no
// template exists at all, the package may be missing, and the pod stays.
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

// clearChanges drops the changes of the single images.
func (p *PodPlan) clearChanges() {
	for n := range p.Images {
		p.Images[n].Change = ""
	}
}

// summarize sets the pod's change, the ID of its offer, its holds and whether it is ready.
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
	if p.Change != "" || writes {
		pp.holdIfBusy(p)
	}
	if p.Change != "" {
		if p.Change != policy.ChangeRemove {
			p.Edits = pp.edits(v, *p)
		}
		p.Holds = append(p.Holds, pp.inv.RestartHolds...)
		pp.addHolds(p)
		pp.addWaits(p)
		if pp.policy.Auto {
			addCatalogWaits(pp.facts, p)
		}
		pp.pullHazardHolds(v, p)
		p.Offer = p.ID
		p.Ready = staged || p.Change == policy.ChangeRemove
	}
}

// offerConversion offers a change of the pod manifest alone, unless the restart would start a
// refused release.
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
		if no, is := pp.refuses(rel, pp.policy.RuleFor(rel.Repository)); is && rel.Digest != "" {
			p.Images[n].refuse(no)
			refused = true
		}
	}
	if refused {
		p.clearChanges()
		p.Change, p.Wanted, p.Waiting = "", nil, false
	}
}

// identity hashes what the pod is to become. It does not depend on the current state, so it is
// stable during an apply.
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

// Withheld reports whether nothing of the pod may be offered.
func (p *PodPlan) Withheld() bool {
	return p.isHeld(status.HoldWithheld) || p.isHeld(status.HoldEdited)
}

func (p *PodPlan) isHeld(name string) bool {
	return slices.ContainsFunc(p.Holds, func(h status.Hold) bool { return h.Name == name })
}

// matches reports whether the rendered pod manifest equals the file on disk.
func (p *PodPlan) matches(disk *node.PodFile) bool {
	return disk != nil && bytes.Equal(disk.Data, p.Wanted)
}
