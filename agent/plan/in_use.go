// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// InUse returns the parts of the record that the plan needs; the rest may be removed.
func InUse(plan Plan, offers map[release.Question]source.Offer, inv node.Inventory, now time.Time) record.InUse {
	use := record.InUse{
		Pods: map[string]record.PodInUse{}, Wrote: map[string]bool{}, Questions: map[string]bool{},
		Releases: map[string]bool{}, Newest: map[string]time.Time{},
	}
	if inv.Catalog.Catalog != "" {
		use.Questions[inv.Catalog.Catalog] = true
	}
	for _, f := range inv.PodManifests {
		use.Wrote[f.Name] = true
	}
	for q, o := range offers {
		use.Questions[q.String()], use.Questions[q.Repository] = true, true
		for _, rel := range o.Known() {
			use.Releases[release.Key(rel.Repository, rel.Digest)] = true
			if policy.IsPlausibleCreation(rel.Created, now) && rel.Created.After(use.Newest[rel.Repository]) {
				use.Newest[rel.Repository] = rel.Created
			}
		}
	}
	onDisk := node.ByName(inv.PodManifests)
	for _, p := range plan.Pods {
		pod := podInUse(&p, onDisk[p.File])
		for _, i := range pod.Images {
			use.Releases[release.Key(i.Repository, i.Running)] = true
		}
		use.Pods[p.File] = pod
	}
	return use
}

func podInUse(p *PodPlan, disk *node.PodFile) record.PodInUse {
	use := record.PodInUse{
		Broken: p.Err != nil, Unclear: p.Err != nil || p.BlocksOffer(), Held: p.isHeld(status.HoldRequested),
		ID: p.ID, Offer: p.Offer, AllRun: p.allRun(), Settled: p.isSettled(), Contains: map[string]bool{},
		AwaitsLock: len(p.Holds) == 0 && len(p.Waits) == 1 && p.Waits[0].Name == status.HoldLock,
	}
	for _, i := range p.Images {
		use.Contains[i.Want.Image.Container] = true
		use.Images = append(use.Images, record.ImageInUse{
			Container: i.Want.Image.Container, Place: node.PlaceOf(i.Want.Image), IsContainer: node.IsContainer(i.Want.Image),
			Repository: i.Want.Ask.Repository, Running: i.Running.Digest, Config: i.Config, Target: i.Target.Digest,
			RunsWell: i.Well, Restarts: i.Flaps,
		})
	}
	if disk == nil {
		return use
	}
	text := string(disk.Content())
	use.OnDisk = &text
	pod, err := disk.Parse()
	if err != nil {
		use.Contains = nil
		return use
	}
	for _, img := range pod.Images {
		use.Contains[img.Container] = true // also of a container that only the file on disk has
	}
	return use
}
