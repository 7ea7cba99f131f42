// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// readBound sets the images that the pod manifest on disk binds to the digests of a catalog. In a pod manifest without
// a template, a digest that the agent did not write was written by a person.
func (v *PodView) readBound(l catalog.Listing, rec record.Record, p policy.Policy) {
	if l.Catalog == "" || v.Disk == nil || v.Disk.Err != nil {
		return
	}
	disk, err := v.Disk.Parse()
	if err != nil {
		return // readDisk reports it
	}
	v.Bound = map[string]record.PinnedImage{}
	for _, img := range disk.Images {
		ref := manifests.SplitReference(img.Reference)
		_, isOverride := v.Override.Names(img)
		isOurs := v.Template != nil || p.Manage[v.File] && rec.Bound[v.File][node.PlaceOf(img)] == digest.Digest(ref.Digest)
		if img.Document != 0 || !node.IsContainer(img) || ref.Digest == "" || ref.Tag == "" || isOverride || !isOurs {
			continue
		}
		if repository, err := release.NormalizeRepository(ref.Name); err == nil {
			v.Bound[node.PlaceOf(img)] = record.PinnedImage{
				Pin: release.Pin{Repository: repository, Digest: digest.Digest(ref.Digest)}, Tag: ref.Tag, Follow: ref.Tag,
			}
		}
	}
}

// Unbound returns kubelet's pod manifest with plain tags in place of digests from an override or a catalog.
func (v *PodView) Unbound() (node.PodFile, error) {
	file, err := v.Override.Unpinned(*v.Disk)
	if err != nil {
		return file, err
	}
	return record.Override{Images: v.Bound}.WithTags(file)
}
