// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// InUse lists the data that a node needs in its record.
type InUse struct {
	Pods      map[string]PodInUse // by pod manifest
	Wrote     map[string]bool     // the pod manifests in kubelet's directory
	Questions map[string]bool     // the current questions and their repositories
	Releases  map[string]bool     // running or offered, by "repository@digest"
	// Newest is the creation time of the newest release at the source, by repository.
	Newest map[string]time.Time
}

// PodInUse is the state of one pod manifest on the node.
type PodInUse struct {
	Broken  bool   // it cannot be read
	Unclear bool   // it is broken, unresolved, or has a pending rollback
	Held    bool   // by a person's hold
	ID      string // the wanted pod: PodPlan.ID
	Offer   string // PodPlan.Offer
	AllRun  bool   // all followed containers run
	Settled bool   // the pod is as wanted, and all its containers run
	// AwaitsLock: mode auto applies the pod as soon as it has the fleet lock.
	AwaitsLock bool
	OnDisk     *string
	Images     []ImageInUse
	Contains   map[string]bool // containers of the wanted pod and of the one on disk; nil if unknown
}

// ImageInUse is the state of one image of a pod manifest.
type ImageInUse struct {
	Container, Place   string
	IsContainer        bool // visible in CRI
	Repository         string
	Running, Config    digest.Digest // digest and image id of the running release
	Target             digest.Digest // the release to run
	RunsWell, Restarts bool          // it runs; it was just restarted
}

// Retain removes the data that the node does not need.
func (r *Record) Retain(use InUse, now time.Time) {
	t := retention{r, use, now}
	t.goods()
	r.Lock.Retain(func(file string) bool { return use.Pods[file].Offer != "" })
	maps.DeleteFunc(r.Failed, t.isOutdated)
	maps.DeleteFunc(r.Unchecked, func(file string, _ Unchecked) bool {
		p, known := use.Pods[file]
		return !known || !t.runsUnverified(file, p)
	})
	maps.DeleteFunc(r.Approved, t.isVoid)
	maps.DeleteFunc(r.HeldBack, t.isPast)
	r.Wrote.Retain(use.Wrote)
	r.Bound.Retain(use.Wrote)
	releases := maps.Clone(use.Releases)
	for _, g := range r.Good {
		releases[release.Key(g.Repository, g.Running)] = true
		for _, p := range g.Before {
			releases[release.Key(p.Repository, p.Digest)] = true
		}
	}
	r.Offers.Retain(use.Questions)
	r.Sources.Retain(use.Questions)
	r.Lists.Retain(use.Questions)
	r.Private.Retain(use.Questions)
	r.Releases.Retain(releases)
	r.Signed.Retain(releases)
	r.Unsigned.Retain(releases)
	r.MinSpace.Retain(releases)
	t.denials()
	maps.DeleteFunc(r.Overrides, t.hasEnded)
	maps.DeleteFunc(r.Holds, func(_ string, h PersonHold) bool { return !r.IsHeld(h, now) })
}

// retention is one run of Retain.
type retention struct {
	*Record
	use InUse
	now time.Time
}

// goods removes the good releases of containers that are gone, and notes which containers are down. A pod manifest that
// cannot be read keeps its containers.
func (t retention) goods() {
	for key := range t.Good {
		file, container, _ := strings.Cut(key, "/")
		if p, known := t.use.Pods[file]; !known || !p.Broken && p.Contains != nil && !p.Contains[container] {
			delete(t.Good, key)
		}
	}
	for file, p := range t.use.Pods {
		for _, i := range p.Images {
			key := GoodKey(file, i.Container)
			if g, is := t.Good[key]; is && i.IsContainer && !t.runsUnverified(file, p) {
				g.Down = !i.RunsWell
				t.Good[key] = g
			}
		}
	}
}

// isOutdated reports whether a failure of a pod is over.
func (t retention) isOutdated(file string, f Failure) bool {
	p, known := t.use.Pods[file]
	if !known || f.Running != "" {
		return !known || p.AllRun && !t.runsUnverified(file, p)
	}
	return p.ID != "" && f.Offer != p.ID || p.Settled
}

// isVoid reports whether an approval is done or void. A hold voids it, so that the end of the hold does not restart a
// pod.
func (t retention) isVoid(file string, a Approval) bool {
	p, known := t.use.Pods[file]
	isOpen := p.Offer == a.Offer || p.ID == a.Offer && t.runsUnverified(file, p)
	return !known || p.Held || !a.IsValid(t.now) || !isOpen
}

// isPast reports whether a held apply is outdated: the offer has changed, or a source has answered since.
func (t retention) isPast(file string, h HeldApply) bool {
	p, known := t.use.Pods[file]
	return !known || p.Offer != h.Offer || slices.ContainsFunc(p.Images, func(i ImageInUse) bool {
		return t.Sources[i.Repository].LastSuccess.After(h.At)
	})
}

// runsUnverified reports whether a pod runs a release that is not known to be good.
func (t retention) runsUnverified(file string, p PodInUse) bool {
	return slices.ContainsFunc(p.Images, func(i ImageInUse) bool {
		g := t.Good[GoodKey(file, i.Container)]
		return i.IsContainer && i.Running != "" && g.Running != "" && !t.IsGood(g, i.Repository, i.Running, i.Config)
	})
}

// hasEnded reports whether an override has ended: the pod manifest is gone or edited, or a newer release has replaced
// all of its images.
func (t retention) hasEnded(file string, o Override) bool {
	p, known := t.use.Pods[file]
	switch {
	case !known || p.OnDisk == nil || o.Pending && !o.IsFor(*p.OnDisk):
		return true
	case o.Pending || p.Unclear || o.isIn(*p.OnDisk):
		return false
	case !t.hasDenied(file):
		return true // it pinned a digest while the registry was away, and was edited by a person
	}
	return !slices.ContainsFunc(p.Images, func(i ImageInUse) bool {
		at, ok := o.Images[i.Place]
		return ok && at.Digest == i.Target
	})
}

// hasDenied reports whether a pod did not come up with a release that is still current.
func (t retention) hasDenied(file string) bool {
	for _, d := range t.Denied {
		if d.PodManifest == file && !d.Past {
			return true
		}
	}
	return false
}

// denials removes old denials. A tag may name another digest for a while and then the denied one again, so a denial
// stays for a long time.
func (t retention) denials() {
	others := map[string][]string{} // by repository
	for key, d := range t.Denied {
		repository, _, _ := strings.Cut(key, "@")
		now, newest := t.certainly(t.now), t.use.Newest[repository]
		isNewest := policy.IsPlausibleCreation(d.Created, t.now) && !newest.IsZero() && !newest.After(d.Created)
		switch {
		case t.use.Releases[key], t.use.Pods[d.PodManifest].Unclear:
			d.Named, d.Past = later(d.Named, later(t.Clock.Believed, now).UTC().Truncate(24*time.Hour)), false
			t.Denied[key] = d
		case now.Sub(d.lastNamed()) > denialAge:
			delete(t.Denied, key)
		default:
			d.Past = d.Past || !isNewest && t.Clock.Jumped.IsZero() // a wrong clock knows no ages
			t.Denied[key] = d
			others[repository] = append(others[repository], key)
		}
	}
	for _, keys := range others {
		slices.SortFunc(keys, func(x, y string) int {
			return cmp.Or(t.Denied[y].lastNamed().Compare(t.Denied[x].lastNamed()), strings.Compare(x, y))
		})
		for _, key := range keys[min(len(keys), maxDenials):] {
			delete(t.Denied, key)
		}
	}
}
