// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// bootTarget returns the release that an image must follow at boot. moves: the pod manifest follows another one. A tag
// that only the configuration names is offered later, not applied at boot.
func (f *facts) bootTarget(w follow.Want) (target release.Release, moves bool) {
	ask := w.Ask
	if ask.Repository == "" {
		return release.Release{}, false // the template decides
	}
	rule := f.policy.RuleFor(ask.Repository)
	target = release.Release{Repository: ask.Repository, Tag: ask.Tag}
	on := w.OnDisk
	if on.Repository == ask.Repository && (rule.Follow != "" || on.Tag == ask.Tag) {
		target.Tag = on.Tag
		return target, false
	}
	// Prefer the intermediate tag that the last poll found for a short one.
	if known := f.rec.Offers[ask.String()].Follow; policy.AreEquivalent(ask.Tag, known.Tag, rule) {
		target.Tag = known.Tag
	}
	ref := release.Reference{Repository: target.Repository, Tag: target.Tag}
	if is, ok := f.inv.Catalog.Newest(ref, rule.Scheme, catalog.Listed.IsOffered); ok {
		target.Digest, target.Long = is.Digest, is.Tag
		return target, true
	}
	return f.lastSeen(ref), true
}

// lastSeen returns the last known release of a tag: on the node if kubelet starts images from there, else from the last
// answer of the source.
func (f *facts) lastSeen(ref release.Reference) release.Release {
	is := release.Release{Repository: ref.Repository, Tag: ref.Tag}
	if f.policy.PullPolicy == manifests.PullIfNotPresent {
		if h, found := f.held.Named(ref.String()); found {
			is.Digest = h.Digest
			return is
		}
	}
	var at time.Time
	for _, key := range slices.Sorted(maps.Keys(f.rec.Offers)) {
		o := f.rec.Offers[key]
		for _, r := range []release.Release{o.Follow, o.Newest} {
			asked := strings.TrimSuffix(key, release.KubeadmSuffix) == ref.String() && r.Digest == o.Follow.Digest
			if r.Repository == ref.Repository && (r.Tag == ref.Tag || asked) && !o.At.Before(at) {
				is, at = r, o.At
			}
		}
	}
	return is
}

// bootRefusal returns why the pod must not start with its template's image; "" if it may.
func (f *facts) bootRefusal(v follow.PodView, target release.Release, w follow.Want) string {
	name, on := target.Repository+":"+target.Tag, w.OnDisk
	rule := f.policy.RuleFor(target.Repository)
	if no, refused := f.refuses(target, rule); refused {
		return no.String()
	}
	switch {
	case rule.Signatures == policy.SignaturesRequire && f.rec.Signed[release.Key(target.Repository, target.Digest)] == "":
		return name + ": no signature is known"
	case on.Repository != "" && host(on.Repository) != host(target.Repository):
		// A rewrite changed the registry, which may not serve the image.
		return name + ": from another registry than " + on.Repository
	case follow.Higher(target.Tag, on.Tag, rule.Scheme) != target.Tag:
		return name + ": lower than " + on.Tag
	case policy.IsLower(target.Tag, v.Override.Images[node.PlaceOf(w.Image)].Tag, rule.Scheme):
		return name + ": lower than the release that the pod was rolled back to"
	case v.Disk != nil && f.policy.PullPolicy == manifests.PullIfNotPresent && !f.hasName(name):
		return name + ": not on the node"
	}
	return ""
}

// host returns the registry of a repository.
func host(repository string) string {
	name, _, _ := strings.Cut(repository, "/")
	return name
}

// hasName reports whether kubelet finds an image with this name on the node.
func (f *facts) hasName(name string) bool {
	_, is := f.held.Named(name)
	return is
}
