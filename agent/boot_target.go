// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

// bootTarget is what an image is to follow; moves: it is not what the pod manifest
// follows. What the configuration names instead of the template is no system's
// update, and is offered.
func (d *decider) bootTarget(w Want) (target Release, moves bool) {
	ask := w.Ask
	if ask.Repository == "" {
		return Release{}, false // as the template has it
	}
	rule := d.policy.rule(ask.Repository)
	target = Release{Repository: ask.Repository, Tag: ask.Tag}
	on := w.OnDisk
	if on.Repository == ask.Repository && (rule.Follow != "" || on.Tag == ask.Tag) {
		target.Tag = on.Tag
		return target, false
	}
	// The intermediate tag of a short one, where the last poll has found it.
	if known := d.rec.Offers[ask.String()].Follow; areTwins(ask.Tag, known.Tag, rule) {
		target.Tag = known.Tag
	}
	return d.lastSeen(Reference{target.Repository, target.Tag}), true
}

// lastSeen is the release that a tag named when somebody looked: where kubelet starts
// what the node has by that name, that, else what the last answer of a source said.
func (d *decider) lastSeen(ref Reference) Release {
	is := Release{Repository: ref.Repository, Tag: ref.Tag}
	if d.policy.PullPolicy == manifests.PullIfNotPresent {
		for _, h := range d.inv.Held {
			if h.Name == ref.String() {
				is.Digest = h.Digest
				return is
			}
		}
	}
	var at time.Time
	for _, key := range slices.Sorted(maps.Keys(d.rec.Offers)) {
		o := d.rec.Offers[key]
		for _, r := range []Release{o.Follow, o.Newest} {
			asked := strings.TrimSuffix(key, ofKubeadm) == ref.String() && r.Digest == o.Follow.Digest
			if r.Repository == ref.Repository && (r.Tag == ref.Tag || asked) && !o.At.Before(at) {
				is, at = r, o.At
			}
		}
	}
	return is
}

// speaksAgainst tells why a pod must not start with what its template brings.
func (d *decider) speaksAgainst(v podView, target Release, w Want) string {
	name, on := target.Repository+":"+target.Tag, w.OnDisk
	rule := d.policy.rule(target.Repository)
	if no, refused := d.rec.Refuses(target, rule); refused {
		return no.String()
	}
	switch {
	case rule.Signatures == SignaturesRequire && d.rec.Signed[releaseKey(target.Repository, target.Digest)] == "":
		return name + ": not known to be signed"
	case on.Repository != "" && host(on.Repository) != host(target.Repository):
		// As a rewrite makes it: nobody has seen that the other one serves it.
		return name + ": of another registry than " + on.Repository
	case higher(target.Tag, on.Tag, rule.Dialect) != target.Tag:
		return name + ": lower than " + on.Tag
	case isLower(target.Tag, v.override.Images[placeOf(w.Image)].Tag, rule.Dialect):
		return name + ": lower than what the pod was rolled back to"
	case v.disk != nil && d.policy.PullPolicy == manifests.PullIfNotPresent && !d.hasName(name):
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
func (d *decider) hasName(name string) bool {
	return slices.ContainsFunc(d.inv.Held, func(h HeldImage) bool { return h.Name == name })
}
