// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

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
	isView := map[string]bool{}
	for _, v := range views {
		plan.Pods, isView[v.File] = append(plan.Pods, f.pod(v)), true
	}
	for _, file := range inv.PodManifests {
		if why := follow.PassedOver(file); why != nil && !isView[file.Name] {
			plan.PassedOver = append(plan.PassedOver, PassedOver{file.Name, why})
		}
	}
	f.holdSets(plan.Pods)
	f.skew(plan.Pods) // after the sets: a client waits for a server of its set, but not the server for the client
	for _, name := range slices.Sorted(maps.Keys(rec.Sets)) {
		plan.BegunSets = append(plan.BegunSets, f.begunSet(name, rec.Sets[name], views, plan.Pods))
	}
	for _, r := range p.Images {
		plan.Tracked = append(plan.Tracked, f.tracked(offers[release.Question{Repository: r.Repository, Tag: r.Tag}]))
	}
	plan.Steps = f.steps(views, plan)
	return plan
}

// facts are the arguments of Decide and the results for all pods together.
type facts struct {
	inv    node.Inventory
	offers map[release.Question]source.Offer
	rec    record.Record
	policy policy.Policy
	now    time.Time
	names  []string   // of all static pods
	pods   node.ByPod // their containers
	held   node.HeldIndex
	onDisk map[string]*node.PodFile   // the pod manifests, by name
	known  map[release.Reference]bool // the tags of the record's releases
	urgent map[string]bool            // releases (repository@digest) to pull without delay
}

// observed returns the facts and a view of each pod manifest.
func observed(
	inv node.Inventory, offers map[release.Question]source.Offer, rec record.Record, p policy.Policy, now time.Time,
) (*facts, []follow.PodView) {
	views := follow.ReadPods(inv, rec, p)
	f := &facts{
		inv: inv, offers: offers, rec: rec, policy: p, now: now, held: inv.Index(), onDisk: node.ByName(inv.PodManifests),
		known: map[release.Reference]bool{},
	}
	for _, r := range rec.Releases {
		f.known[release.Reference{Repository: r.Repository, Tag: r.Tag}] = true
	}
	for _, v := range views {
		if v.Err == nil {
			f.names = append(f.names, v.Pod.Name)
			if v.Disk != nil && v.Was.Name != v.Pod.Name {
				f.names = append(f.names, v.Was.Name)
			}
		}
	}
	f.pods = inv.ByPod(f.names)
	for n := range views {
		views[n].Override.Pending = views[n].Override.Pending || f.needsRestore(&views[n])
	}
	return f, views
}

// tracked plans an image of the configuration that no pod manifest names.
func (f *facts) tracked(o source.Offer) ImagePlan {
	i := ImagePlan{Offer: o}
	if !o.IsUnresolved() {
		f.target(follow.Want{}, &i, f.policy.RuleFor(o.Repository), "")
	}
	i.Staged = f.isStaged(i.Target)
	one := []ImagePlan{i}
	one[0].Holds = f.diskHolds(one)
	return one[0]
}

// pod plans one pod manifest.
func (f *facts) pod(v follow.PodView) PodPlan {
	p := PodPlan{File: v.File, Pod: v.Pod.Name, Role: v.Role(), Err: v.Err}
	if v.Err != nil {
		return p
	}
	containers := f.pods.Containers(v.Pod.Namespace, v.Pod.Name)
	for _, w := range v.Wants {
		p.Images = append(p.Images, f.image(v, w, containers))
		if w.Untouched != "" {
			p.Untouched = append(p.Untouched, untouched([]manifests.Image{w.Image})...)
		}
	}
	switch {
	case v.Duplicate.Is():
		// It is unknown which of the files runs: neither is overwritten.
		p.clearChanges()
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldDuplicate, Reason: v.Duplicate.String()})
		return p
	case v.Override.Pending:
		// The pending override is applied first.
		p.clearChanges()
		f.holdIfBusy(&p)
		return p
	case f.planOrphan(v, &p):
		// Its template is gone: only the removal is offered.
	case v.Owner != "":
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldDistribution, Reason: v.Unmanaged()})
	case f.withhold(&p):
		// An unresolved image leaves the whole pod unrendered.
		p.clearChanges()
	case !v.Managed:
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldUnmanaged, Reason: v.Unmanaged()})
	default:
		f.render(v, &p)
	}
	f.summarize(v, &p)
	return p
}

// withhold holds a pod with unresolved images.
func (f *facts) withhold(p *PodPlan) bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.IsUnresolved() {
			p.Holds = append(p.Holds, status.Hold{
				Name: status.HoldUnresolved, Image: i.Want.Ask.Repository, Reason: fmt.Sprintf("%s: %v", i.Want.Ask, i.Offer.Err),
				NotAsked: errors.Is(i.Offer.Err, release.ErrNotAsked),
			})
		}
	}
	return len(p.Holds) > 0
}

// planOrphan offers to remove a pod manifest of the agent whose template is gone. If no
// template exists at all, the package may be missing, and the pod stays.
func (f *facts) planOrphan(v follow.PodView, p *PodPlan) bool {
	_, ours := f.rec.Wrote[v.File]
	if v.Template != nil || !ours || f.policy.Manage[v.File] || v.ReadOnly != nil || len(f.inv.Templates) == 0 {
		return false
	}
	p.clearChanges()
	if f.unedited(*v.Disk) {
		p.Change = policy.ChangeRemove
		return true
	}
	p.Holds = append(p.Holds, status.Hold{
		Name: status.HoldEdited, Reason: "its template is gone, but the file was edited since the agent wrote it",
	})
	return true
}

// clearChanges drops the changes of the single images.
func (p *PodPlan) clearChanges() {
	for n := range p.Images {
		p.Images[n].Change = ""
	}
}

// summarize sets the pod's change, the ID of its offer, its holds and its readiness.
func (f *facts) summarize(v follow.PodView, p *PodPlan) {
	if p.Err != nil || p.BlocksOffer() {
		return
	}
	staged := true
	for _, i := range p.Images {
		if policy.ChangeRank[i.Change] > policy.ChangeRank[p.Change] {
			p.Change = i.Change
		}
		staged = staged && (i.Target.Digest == "" || i.Staged)
	}
	f.offerConversion(p)
	p.ID = p.identity()
	if p.IsOwned() { // not approved, and without other holds
		p.Edits = f.edits(v, *p)
		return
	}
	if f.wantsStaged(*p) {
		p.Holds = append(p.Holds, f.diskHolds(p.Images)...)
	}
	writes := p.Wanted != nil && !p.matches(f.onDisk[p.File])
	if p.Change != "" || writes {
		f.holdIfBusy(p)
	}
	if p.Change != "" {
		if p.Change != policy.ChangeRemove {
			p.Edits = f.edits(v, *p)
		}
		p.Holds = append(p.Holds, f.inv.RestartHolds...)
		f.addHolds(p)
		f.addWaits(p)
		if f.policy.Auto {
			f.addCatalogWaits(p)
			f.addSeverityWait(p)
		}
		f.pullHazardHolds(v, p)
		p.Offer = p.ID
		p.Ready = staged || p.Change == policy.ChangeRemove
	}
}

// offerConversion offers a change of the pod manifest without another image, unless the restart would start a refused
// release.
func (f *facts) offerConversion(p *PodPlan) {
	if p.Change == "" && p.Waiting {
		p.Change = policy.ChangeConvert
	}
	if p.Change != policy.ChangeConvert {
		return
	}
	refused := false
	for n := range p.Images {
		rel := p.Images[n].Target
		if no, is := f.refuses(rel, f.policy.RuleFor(rel.Repository)); is && rel.Digest != "" {
			p.Images[n].refuse(no)
			refused = true
		}
	}
	if refused {
		p.clearChanges()
		p.Change, p.Wanted, p.Waiting = "", nil, false
	}
}

// identity hashes the wanted state of the pod. It does not depend on the current state, so it is stable during an
// apply.
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

// BlocksOffer reports whether no change of the pod may be offered.
func (p *PodPlan) BlocksOffer() bool {
	return p.isHeld(status.HoldUnresolved) || p.isHeld(status.HoldEdited) || p.isHeld(status.HoldDuplicate)
}

// IsOwned reports whether the Kubernetes distribution writes the pod manifest.
func (p *PodPlan) IsOwned() bool { return p.isHeld(status.HoldDistribution) }

// IsUnmanaged reports whether the agent does not change the pod manifest.
func (p *PodPlan) IsUnmanaged() bool { return p.IsOwned() || p.isHeld(status.HoldUnmanaged) }

func (p *PodPlan) isHeld(name string) bool {
	return slices.ContainsFunc(p.Holds, func(h status.Hold) bool { return h.Name == name })
}

// matches reports whether the rendered pod manifest equals the file on disk.
func (p *PodPlan) matches(disk *node.PodFile) bool {
	return disk != nil && bytes.Equal(disk.Data, p.Wanted)
}

// render renders the wanted pod manifest and compares it with the one on disk.
func (f *facts) render(v follow.PodView, p *PodPlan) {
	p.Waiting, p.Err = false, nil
	var disk *manifests.File
	if v.Disk != nil {
		if disk, p.Err = v.Disk.Parse(); p.Err != nil {
			return
		}
	}
	wanted, leftAlone, err := f.renderFile(&v, p, disk)
	if err != nil {
		p.Err = fmt.Errorf("render: %w", err)
		return
	}
	p.Wanted, p.Untouched = wanted.Data, untouched(leftAlone)
	p.Waiting = disk != nil && !p.matches(v.Disk) && !manifests.Equal(disk, wanted)
}

// renderFile renders the template with the target tags, and keeps the pins of an override.
func (f *facts) renderFile(
	v *follow.PodView, p *PodPlan, disk *manifests.File,
) (*manifests.File, []manifests.Image, error) {
	template, err := v.Source().Parse()
	if err != nil {
		return nil, nil, err
	}
	tags := map[string]string{}
	for _, i := range p.Images {
		isLater := i.Want.Image.Document > 0 // it has the same paths, and is not edited
		if !isLater && !i.namesLatest() {
			tags[i.Want.Image.Path] = i.Target.Tag
		}
	}
	out, err := template.Render(manifests.Overrides{
		Rewrites: f.policy.Rewrites, PullPolicy: v.PullPolicy(f.policy),
		Tag: func(_ string, img manifests.Image) (string, bool) {
			t := tags[img.Path]
			return t, t != ""
		},
	}, disk)
	if err != nil {
		return nil, nil, err
	}
	places, all := unreplacedPlaces(v, p)
	if all && v.Template != nil {
		if text, ok := stillWanted(v.Override, p); ok {
			return text, out.Untouched, nil
		}
	}
	if pins := v.Override.Pins(places); len(pins) > 0 {
		if out.File, err = out.Pin(pins, manifests.PullIfNotPresent); err != nil {
			return nil, nil, err
		}
	}
	bound, err := bind(p, out.File)
	return bound, out.Untouched, err
}

// namesLatest reports whether the target is the tag that kubelet pulls for a reference without a tag, and neither the
// template nor the pod manifest on disk has one: to write it would restart the pod for nothing.
func (i *ImagePlan) namesLatest() bool {
	written := manifests.SplitReference(i.Want.Image.Reference)
	return written.Tag == "" && written.Digest == "" && i.Want.OnDisk.Tag == "" &&
		i.Target.Tag == release.Reference{}.Tagged().Tag
}

// unreplacedPlaces returns the places of the override that no newer release replaces. all: the override has no other
// places.
func unreplacedPlaces(v *follow.PodView, p *PodPlan) (places []string, all bool) {
	for _, i := range p.Images {
		if at, ok := v.PinnedAt(i.Want.Image); ok && at.Digest == i.Target.Digest {
			places = append(places, node.PlaceOf(i.Want.Image))
		}
	}
	slices.Sort(places)
	return places, len(places) > 0 && len(places) == len(v.Override.Images)
}

// stillWanted returns the text of an override if it still applies: images that it does not pin may follow another tag
// by now.
func stillWanted(o record.Override, pod *PodPlan) (*manifests.File, bool) {
	text, err := manifests.Parse([]byte(o.Data))
	if err != nil {
		return nil, false
	}
	refs := map[string]manifests.Reference{}
	for _, img := range text.Images {
		refs[node.PlaceOf(img)] = manifests.SplitReference(img.Reference)
	}
	return text, !slices.ContainsFunc(pod.Images, func(i ImagePlan) bool {
		place := node.PlaceOf(i.Want.Image)
		_, named := o.Images[place]
		ref, there := refs[place]
		isOther := i.Target.Tag != ref.Tag || ref.Digest != "" && ref.Digest != i.Target.Digest.String()
		return !named && there && i.Target.Tag != "" && isOther
	})
}

// edits returns the changes of images and pull policies in the pod's offer.
func (f *facts) edits(v follow.PodView, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		if i.Change == "" {
			continue
		}
		e := status.Edit{Container: i.Want.Image.Container, Field: status.EditImage, From: i.Running.Tag, To: i.Target.Name()}
		if e.From == e.To { // the names are equal: show the tags
			e.From, e.To = i.Want.OnDisk.Tag, i.Target.Tag
		}
		if e.From == e.To {
			e.From, e.To = withDigest(e.From, i.Running.Digest), withDigest(e.To, i.Target.Digest)
		}
		if e.From != e.To {
			out = append(out, e)
		}
	}
	if v.Disk == nil || !p.Waiting {
		return out
	}
	return append(out, follow.PullPolicyEdits(*v.Disk, p.Wanted)...)
}

func withDigest(tag string, d digest.Digest) string {
	if d == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, d.Encoded())
}
