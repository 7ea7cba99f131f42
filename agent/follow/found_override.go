// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

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
