// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

// ApprovalAge is how long a yes holds that could not be carried out: a day, so
// that a forgotten approval does not restart a pod in the middle of next week.
const ApprovalAge = 24 * time.Hour

// The names of holds. They are an interface: scripts and dashboards match them.
const (
	HoldWithheld  = "withheld"  // an image of the pod is unresolved
	HoldBusy      = "busy"      // another operation owns the node
	HoldUnmanaged = "unmanaged" // the pod manifest is not ours to change
	HoldEdited    = "edited"    // somebody edited a file of ours whose template is gone
	HoldRefused   = "refused"   // a restart would start what a rule refuses
	HoldAsked     = "hold"      // a person, or the configuration, wants nothing applied
	HoldDisk      = "disk"      // no room for a pull on the image filesystem
	HoldFreeze    = "freeze"    // the configuration wants nothing applied before a date
	// What only an apply without a person's yes waits for.
	HoldWindow       = "window"        // no maintenance window is open
	HoldControlPlane = "control-plane" // etcd and kube-apiserver are for a person, node by node
	HoldFailed       = "failed"        // it was tried, and did not come up
)

// Decide makes the plan of one cycle. It is pure: the same arguments give the
// same plan, and it changes none of them.
func Decide(inv Inventory, offers map[Question]Offer, rec Record, p Policy, now time.Time) Plan {
	d, views := newDecider(inv, offers, rec, p, now)
	return d.plan(views)
}

func newDecider(inv Inventory, offers map[Question]Offer, rec Record, p Policy, now time.Time) (*decider, []podView) {
	views := survey(inv, rec.Overrides, p)
	d := decider{inv: inv, offers: offers, rec: rec, policy: p, now: now}
	for _, v := range views {
		if v.err == nil {
			d.names = append(d.names, v.pod.Name)
			if v.disk != nil && v.was.Name != v.pod.Name {
				d.names = append(d.names, v.was.Name)
			}
		}
	}
	for n := range views {
		views[n].override.Pending = views[n].override.Pending || d.strayed(&views[n])
	}
	return &d, views
}

func (d *decider) plan(views []podView) Plan {
	plan := Plan{names: d.names}
	for _, v := range views {
		plan.Pods = append(plan.Pods, d.pod(v))
	}
	d.skew(plan.Pods)
	for _, r := range d.policy.Images {
		plan.Tracked = append(plan.Tracked, d.tracked(d.offers[Question{Repository: r.Repository, Tag: r.Tag}]))
	}
	plan.Steps = d.steps(views, plan)
	return plan
}

// tracked plans an image that no pod manifest names: nothing runs that its rules
// could compare it with.
func (d *decider) tracked(o Offer) ImagePlan {
	i := ImagePlan{Offer: o}
	if !o.Unresolved() {
		d.target(Want{}, &i, d.policy.rule(o.Repository), "")
	}
	i.Staged = d.isStaged(i.Target)
	one := []ImagePlan{i}
	one[0].Holds = d.cramped(one)
	return one[0]
}

// decider is Decide's arguments, and what all pods together tell.
type decider struct {
	inv    Inventory
	offers map[Question]Offer
	rec    Record
	policy Policy
	now    time.Time
	names  []string
	urgent map[string]bool // releases (repository@digest) that no pod waits for
}

// pod plans one pod manifest.
func (d *decider) pod(v podView) PodPlan {
	p := PodPlan{File: v.file, Pod: v.pod.Name, Err: v.err}
	if v.err != nil {
		return p
	}
	containers := d.inv.podContainers(v.pod.Namespace, v.pod.Name, d.names)
	for _, w := range v.wants {
		p.Images = append(p.Images, d.image(v, w, containers))
		if w.Left != "" {
			p.Left = append(p.Left, left([]manifests.Image{w.Image})...)
		}
	}
	switch {
	case v.override.Pending:
		// It is brought to that first.
		p.offerNothing()
		if d.inv.Busy != "" {
			p.Holds = append(p.Holds, Hold{Name: HoldBusy, Reason: d.inv.Busy, Grain: d.inv.BusyGrain})
		}
		return p
	case d.orphan(v, &p):
		// Its template is gone: nothing of it is offered any more.
	case d.withheld(&p):
		// Rule 2: one unresolved image withholds the whole pod.
		p.offerNothing()
	case !v.managed:
		p.Holds = append(p.Holds, Hold{Name: HoldUnmanaged, Reason: v.unmanaged()})
	default:
		d.render(v, &p)
	}
	d.sum(v, &p)
	return p
}

// withheld holds a pod back whose images are not all known.
func (d *decider) withheld(p *PodPlan) bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.Unresolved() {
			p.Holds = append(p.Holds, Hold{
				Name: HoldWithheld, Image: i.Want.Ask.Repository, Reason: fmt.Sprintf("%s: %v", i.Want.Ask, i.Offer.Err),
			})
		}
	}
	return len(p.Holds) > 0
}

// orphan plans a pod manifest of ours whose template is gone. Without any
// template at all nothing is concluded: the package may just not be there.
func (d *decider) orphan(v podView, p *PodPlan) bool {
	_, ours := d.rec.Wrote[v.file]
	if v.template != nil || !ours || d.policy.Manage[v.file] || len(d.inv.Templates) == 0 {
		return false
	}
	if !d.unedited(*v.disk) {
		p.Holds = append(p.Holds, Hold{
			Name: HoldEdited, Reason: "its template is gone, but the file was edited since we wrote it",
		})
		p.offerNothing()
		return true
	}
	p.offerNothing()
	p.Change = ChangeRemove
	return true
}

// offerNothing takes back what the images alone would offer.
func (p *PodPlan) offerNothing() {
	for n := range p.Images {
		p.Images[n].Change = ""
	}
}

// render makes the wanted pod manifest and compares it with the one on disk.
func (d *decider) render(v podView, p *PodPlan) {
	var tags []tagAt
	for _, i := range p.Images {
		if i.Want.Image.Document == 0 { // a later one has the same paths, and is not edited
			tags = append(tags, tagAt{i.Want.Image.Path, i.Target.Tag})
		}
	}
	w := renderInput{
		overrides: manifests.Overrides{Rewrites: d.policy.Rewrites, PullPolicy: v.pullPolicy(d.policy)},
		tags:      tags,
	}
	places, all := v.standing(p)
	if all && v.template != nil && v.override.says(p) {
		w.text = v.override.Data
	} else {
		w.pins = v.override.pins(places)
	}
	out, err := render(v.source().Data, v.disk, w)
	if out.wanted != nil {
		p.Wanted, p.Left = out.wanted, out.left
	}
	p.Waiting, p.Err = out.waiting, err
}

// sum draws the pod's change, its offer's identity and its readiness.
func (d *decider) sum(v podView, p *PodPlan) {
	if p.Err != nil || p.withheld() {
		return
	}
	staged := true
	for _, i := range p.Images {
		if changeRank[i.Change] > changeRank[p.Change] {
			p.Change = i.Change
		}
		staged = staged && (i.Target.Digest == "" || i.Staged)
	}
	d.convert(p)
	p.ID = p.identity()
	if d.wantsStaged(*p) {
		p.Holds = append(p.Holds, d.cramped(p.Images)...)
	}
	writes := p.Wanted != nil && !p.same(find(d.inv.PodManifests, p.File))
	if d.inv.Busy != "" && (p.Change != "" || writes) {
		p.Holds = append(p.Holds, Hold{Name: HoldBusy, Reason: d.inv.Busy, Grain: d.inv.BusyGrain})
	}
	if p.Change != "" {
		if p.Change != ChangeRemove {
			p.Edits = d.edits(v, *p)
		}
		p.Holds = append(p.Holds, d.inv.Against...)
		d.holds(p)
		d.waitsFor(p)
		d.traps(v, p)
		p.Offer = p.ID
		p.Ready = staged || p.Change == ChangeRemove
	}
}

// convert offers what changes the pod manifest alone, unless the restart that it
// needs would start what a rule refuses.
func (d *decider) convert(p *PodPlan) {
	if p.Change == "" && p.Waiting {
		p.Change = ChangeConvert
	}
	if p.Change != ChangeConvert {
		return
	}
	refused := false
	for n := range p.Images {
		rel := p.Images[n].Target
		if no, is := d.rec.Refuses(rel, d.policy.rule(rel.Repository)); is && rel.Digest != "" {
			p.Images[n].refuse(no)
			refused = true
		}
	}
	if refused {
		p.offerNothing()
		p.Change, p.Wanted, p.Waiting = "", nil, false
	}
}

// identity names what the pod is to be, and nothing of what it is: it does not
// change while an apply is under way.
func (p *PodPlan) identity() string {
	id := sha256.New()
	fmt.Fprintf(id, "%s\n", p.File)
	if p.Change == ChangeRemove {
		fmt.Fprintln(id, ChangeRemove)
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

func (p *PodPlan) withheld() bool { return p.isHeld(HoldWithheld) || p.isHeld(HoldEdited) }

func (p *PodPlan) isHeld(name string) bool {
	return slices.ContainsFunc(p.Holds, func(h Hold) bool { return h.Name == name })
}

// same reports whether the rendered file is the one on disk to the byte.
func (p *PodPlan) same(disk *PodFile) bool { return disk != nil && bytes.Equal(disk.Data, p.Wanted) }

// isContainer reports whether CRI shows what becomes of an image: a volume's
// runs nothing, and may have a container's name.
func isContainer(i manifests.Image) bool {
	return i.Kind == manifests.KindContainer || i.Kind == manifests.KindInit
}
