// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// lost returns the releases that the node must have and has lost: those to which pods are rolled back, with the images
// that they keep then, and running ones whose content cannot be read. Somebody has removed them, or the disk did.
func (f *facts) lost(views []follow.PodView, pods []PodPlan) []release.Release {
	need := map[release.Pin]bool{}
	for n, v := range views {
		to, err := f.returnsTo(v, pods[n])
		if err != nil || to == nil {
			continue
		}
		for _, at := range to.Images {
			need[at.Pin] = true
		}
	}
	for _, g := range f.rec.Good {
		for _, p := range g.Before {
			need[p] = true
		}
		if f.held.Has(g.Running) && !f.held.IsReadable(g.Running) {
			need[release.Pin{Repository: g.Repository, Digest: g.Running}] = true
		}
	}
	for _, p := range f.rec.BeforeSets() {
		need[p] = true
	}
	var out []release.Release
	for p := range need {
		if rel := f.releaseOf(p); p.Digest != "" && !f.held.Staged(rel) {
			if _, short := f.shortage(rel); !short {
				out = append(out, rel)
			}
		}
	}
	slices.SortFunc(out, func(a, b release.Release) int {
		return strings.Compare(release.Key(a.Repository, a.Digest), release.Key(b.Repository, b.Digest))
	})
	return out
}

// returnsTo returns the override of a rollback of the whole pod; nil if no other release is known.
func (f *facts) returnsTo(v follow.PodView, p PodPlan) (*record.Override, error) {
	has := slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return f.rec.HasTarget(p.File, i.Want.Image.Container, i.Running.Digest)
	})
	if p.Err != nil || !has {
		return nil, p.Err
	}
	return f.byPerson(v, p, All())
}

// releaseOf returns what is known of a release.
func (f *facts) releaseOf(p release.Pin) release.Release {
	if rel, known := f.rec.Releases[release.Key(p.Repository, p.Digest)]; known {
		return rel
	}
	return release.Release{Repository: p.Repository, Digest: p.Digest}
}

// missing returns the images of an override that are not complete on the node, by name.
func (f *facts) missing(o record.Override) []record.PinnedImage {
	var out []record.PinnedImage
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		if at := o.Images[place]; !f.held.Staged(release.Release{Repository: at.Repository, Digest: at.Digest}) {
			out = append(out, at)
		}
	}
	return out
}
