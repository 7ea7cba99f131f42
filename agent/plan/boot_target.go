// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// bootTarget is what an image is to follow; moves: it is not what the pod manifest
// follows. What the configuration names instead of the template is no system's
// update, and is offered.
func (bp bootPlanner) bootTarget(w follow.Want) (target release.Release, moves bool) {
	ask := w.Ask
	if ask.Repository == "" {
		return release.Release{}, false // as the template has it
	}
	rule := bp.policy.RuleFor(ask.Repository)
	target = release.Release{Repository: ask.Repository, Tag: ask.Tag}
	on := w.OnDisk
	if on.Repository == ask.Repository && (rule.Follow != "" || on.Tag == ask.Tag) {
		target.Tag = on.Tag
		return target, false
	}
	// The intermediate tag of a short one, where the last poll has found it.
	if known := bp.rec.Offers[ask.String()].Follow; policy.AreTwins(ask.Tag, known.Tag, rule) {
		target.Tag = known.Tag
	}
	return bp.lastSeen(release.Reference{Repository: target.Repository, Tag: target.Tag}), true
}

// lastSeen is the release that a tag named when somebody looked: where kubelet starts
// what the node has by that name, that, else what the last answer of a source said.
func (f *facts) lastSeen(ref release.Reference) release.Release {
	is := release.Release{Repository: ref.Repository, Tag: ref.Tag}
	if f.policy.PullPolicy == manifests.PullIfNotPresent {
		for _, h := range f.inv.Held {
			if h.Name == ref.String() {
				is.Digest = h.Digest
				return is
			}
		}
	}
	var at time.Time
	for _, key := range slices.Sorted(maps.Keys(f.rec.Offers)) {
		o := f.rec.Offers[key]
		for _, r := range []release.Release{o.Follow, o.Newest} {
			asked := strings.TrimSuffix(key, release.OfKubeadm) == ref.String() && r.Digest == o.Follow.Digest
			if r.Repository == ref.Repository && (r.Tag == ref.Tag || asked) && !o.At.Before(at) {
				is, at = r, o.At
			}
		}
	}
	return is
}

// bootRefusal tells why a pod must not start with what its template brings.
func (bp bootPlanner) bootRefusal(v follow.PodView, target release.Release, w follow.Want) string {
	name, on := target.Repository+":"+target.Tag, w.OnDisk
	rule := bp.policy.RuleFor(target.Repository)
	if no, refused := bp.rec.Refuses(target, rule); refused {
		return no.String()
	}
	switch {
	case rule.Signatures == policy.SignaturesRequire && bp.rec.Signed[release.Key(target.Repository, target.Digest)] == "":
		return name + ": not known to be signed"
	case on.Repository != "" && host(on.Repository) != host(target.Repository):
		// As a rewrite makes it: nobody has seen that the other one serves it.
		return name + ": of another registry than " + on.Repository
	case follow.Higher(target.Tag, on.Tag, rule.Dialect) != target.Tag:
		return name + ": lower than " + on.Tag
	case policy.IsLower(target.Tag, v.Override.Images[node.PlaceOf(w.Image)].Tag, rule.Dialect):
		return name + ": lower than what the pod was rolled back to"
	case v.Disk != nil && bp.policy.PullPolicy == manifests.PullIfNotPresent && !bp.hasName(name):
		return name + ": not on the node"
	}
	return ""
}

// host is the registry of a repository.
func host(repository string) string {
	name, _, _ := strings.Cut(repository, "/")
	return name
}

// hasName reports whether kubelet finds an image on the node by this name.
func (f *facts) hasName(name string) bool {
	return slices.ContainsFunc(f.inv.Held, func(h node.HeldImage) bool { return h.Name == name })
}
