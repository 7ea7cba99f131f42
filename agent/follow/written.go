// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// RestoreWritten restores what a lost record knew of managed pod manifests without a template: which digests in them
// the agent wrote. Those stand beside a tag, and the agent has pinned their images; an override also has IfNotPresent.
// Templates show it without a record, see foundOverride.
func RestoreWritten(inv node.Inventory, rec *record.Record, p policy.Policy, now time.Time) {
	templates := node.ByName(inv.Templates)
	_, pinned := inv.Digests()
	for _, f := range inv.PodManifests {
		pod, err := f.Parse()
		if err != nil || f.Err != nil || !p.Manage[f.Name] || templates[f.Name] != nil {
			continue
		}
		o := record.Override{
			At: now.UTC(), Reason: "the record that said why was lost", Data: string(f.Data),
			Images: map[string]record.PinnedImage{},
		}
		bound := map[string]digest.Digest{}
		for _, img := range pod.Images {
			ref := manifests.SplitReference(img.Reference)
			repository, err := release.NormalizeRepository(ref.Name)
			pin := release.Pin{Repository: repository, Digest: digest.Digest(ref.Digest)}
			if err != nil || img.Document != 0 || !node.IsContainer(img) || ref.Tag == "" || !pinned[pin] {
				continue
			}
			if _, listed := inv.Catalog.Find(repository, pin.Digest); listed {
				bound[node.PlaceOf(img)] = pin.Digest
			} else if node.PullPolicyOf(img) == manifests.PullIfNotPresent {
				o.Images[node.PlaceOf(img)] = record.PinnedImage{
					Pin: pin, Tag: ref.Tag, Follow: release.Floating(ref.Tag, p.RuleFor(repository).Scheme),
				}
			}
		}
		if len(o.Images) > 0 {
			rec.Overrides.Set(f.Name, o)
		}
		if len(bound) > 0 {
			rec.Bound.Set(f.Name, bound)
		}
	}
}

// foundOverride returns the override for a pod manifest that has digests in place of its template's tags. The record
// has none, because it was lost or because a person wrote the digests. The images follow the template's tags.
func (v *PodView) foundOverride(p policy.Policy) record.Override {
	if v.Template == nil || v.Disk == nil || len(v.Override.Images) > 0 {
		return v.Override
	}
	template, err := v.Template.Parse()
	if err != nil {
		return v.Override
	}
	disk, err := v.Disk.Parse()
	if err != nil {
		return v.Override
	}
	follows := map[string]bool{}
	for _, img := range template.Images {
		follows[node.PlaceOf(img)] = node.IsContainer(img) && node.Pulled(img)
	}
	o := record.Override{Reason: "the record does not say why", Images: map[string]record.PinnedImage{}}
	for _, img := range disk.Images {
		ref := manifests.SplitReference(img.Reference)
		_, isBound := v.Bound[node.PlaceOf(img)]
		if img.Document != 0 || ref.Digest == "" || isBound || !follows[node.PlaceOf(img)] {
			continue
		}
		if repository, err := release.NormalizeRepository(ref.Name); err == nil {
			o.Images[node.PlaceOf(img)] = record.PinnedImage{
				Pin: release.Pin{Repository: repository, Digest: digest.Digest(ref.Digest)}, Tag: ref.Tag,
				Follow: release.Floating(ref.Tag, p.RuleFor(repository).Scheme),
			}
		}
	}
	if len(o.Images) == 0 {
		return v.Override
	}
	return o
}
