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
