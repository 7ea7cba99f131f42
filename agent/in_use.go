// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"
)

// inUse is what a plan needs of the record.
func inUse(plan Plan, offers map[Question]Offer, inv Inventory, now time.Time) InUse {
	use := InUse{
		Pods: map[string]PodInUse{}, Wrote: map[string]bool{}, Questions: map[string]bool{},
		Releases: map[string]bool{}, Newest: map[string]time.Time{},
	}
	for _, f := range inv.PodManifests {
		use.Wrote[f.Name] = true
	}
	for q, o := range offers {
		use.Questions[q.String()], use.Questions[q.Repository] = true, true
		for _, rel := range o.known() {
			use.Releases[releaseKey(rel.Repository, rel.Digest)] = true
			if isCreation(rel.Created, now) && rel.Created.After(use.Newest[rel.Repository]) {
				use.Newest[rel.Repository] = rel.Created
			}
		}
	}
	for _, p := range plan.Pods {
		pod := p.inUse(find(inv.PodManifests, p.File))
		for _, i := range pod.Images {
			use.Releases[releaseKey(i.Repository, i.Running)] = true
		}
		use.Pods[p.File] = pod
	}
	return use
}

func (p *PodPlan) inUse(disk *PodFile) PodInUse {
	use := PodInUse{
		Broken: p.Err != nil, Unclear: p.Err != nil || p.withheld(), Held: p.isHeld(HoldAsked),
		ID: p.ID, Offer: p.Offer, AllRun: p.allWell(), Settled: p.well(), Contains: map[string]bool{},
	}
	for _, i := range p.Images {
		use.Contains[i.Want.Image.Container] = true
		use.Images = append(use.Images, ImageInUse{
			Container: i.Want.Image.Container, Place: placeOf(i.Want.Image), IsContainer: isContainer(i.Want.Image),
			Repository: i.Want.Ask.Repository, Running: i.Running.Digest, Config: i.Config, Target: i.Target.Digest,
			RunsWell: i.Well, Restarts: i.Flaps,
		})
	}
	if disk == nil {
		return use
	}
	text := string(disk.Data)
	use.OnDisk = &text
	pod, err := disk.Parse()
	if err != nil {
		use.Contains = nil
	}
	for _, img := range pod.Images {
		if use.Contains != nil {
			use.Contains[img.Container] = true // its template has it no more
		}
	}
	return use
}
