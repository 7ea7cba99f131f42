// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// found is the override that a pod manifest tells of itself: it names digests where
// its template names tags, and the record does not say why, as it was lost, or as a
// person has written them. What they stand for follows a tag all the same.
func (v *podView) found(p Policy) Override {
	if v.template == nil || v.disk == nil || len(v.override.Images) > 0 {
		return v.override
	}
	template, err := v.template.Parse()
	if err != nil {
		return v.override
	}
	disk, err := v.disk.Parse()
	if err != nil {
		return v.override
	}
	follows := map[string]bool{}
	for _, img := range template.Images {
		follows[placeOf(img)] = isContainer(img) && pulled(img)
	}
	o := Override{Reason: "the record does not say why", Images: map[string]Overridden{}}
	for _, img := range disk.Images {
		ref := manifests.SplitReference(img.Reference)
		repository, err := NormalizeRepository(ref.Name)
		if err == nil && img.Document == 0 && ref.Digest != "" && follows[placeOf(img)] {
			o.Images[placeOf(img)] = Overridden{
				Pin: Pin{repository, digest.Digest(ref.Digest)}, Tag: ref.Tag,
				Follow: floating(ref.Tag, p.rule(repository).Dialect),
			}
		}
	}
	if len(o.Images) == 0 {
		return v.override
	}
	return o
}

// floating is the tag that a release of that name is followed by.
func floating(tag string, d tags.Dialect) string {
	if t, err := d.Parse(tag); err == nil && t.Form() == tags.Long {
		if im, ok := t.Intermediate(); ok {
			return im.Wire()
		}
	}
	return tag
}
