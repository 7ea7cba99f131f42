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

// InUse is what a node needs of its record. What nothing needs is removed, so that the
// record stays small.
type InUse struct {
	Pods      map[string]PodInUse // by pod manifest
	Wrote     map[string]bool     // the pod manifests that kubelet has
	Questions map[string]bool     // the questions that are asked, and their repositories
	Releases  map[string]bool     // that run, well or not, or are offered, by "repository@digest"
	// Newest is when the newest release was created that a source names, by repository.
	Newest map[string]time.Time
}

// PodInUse is one pod manifest as the node has it.
type PodInUse struct {
	Broken   bool   // it cannot be read, and nothing is known of it
	Unclear  bool   // it is broken, withheld, or about to be rolled back
	Held     bool   // a person holds it
	ID       string // what the pod is to be: PodPlan.ID
	Offer    string // PodPlan.Offer
	AllRun   bool   // all of its followed containers run
	Settled  bool   // it is what it is to be, and all of it runs
	OnDisk   *string
	Images   []ImageInUse
	Contains map[string]bool // containers of the wanted pod, and of the one on disk; nil: not known
}

// ImageInUse is one image of a pod manifest.
type ImageInUse struct {
	Container, Place   string
	IsContainer        bool // CRI shows what becomes of it
	Repository         string
	Running, Config    digest.Digest // what runs: its digest and its image id
	Target             digest.Digest // what is to run
	RunsWell, Restarts bool          // it runs; it was restarted just now
}

// Retain removes what the node does not need any more.
func (r *Record) Retain(use InUse, now time.Time) {
	r.retainPods(use, now)
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
	r.Releases.Retain(releases)
	r.Signed.Retain(releases)
	r.Unproved.Retain(releases)
	r.Least.Retain(releases)
	r.retainDenied(use, now)
	maps.DeleteFunc(r.Overrides, func(file string, o Override) bool { return r.hasEnded(o, file, use.Pods) })
	maps.DeleteFunc(r.Holds, func(_ string, h PersonHold) bool { return !h.Stands(now) })
}

// retainPods removes what is kept by pod manifest. Of one that cannot be read now all
// stays but approvals: an approval is of what was seen. A hold takes an approval back,
// so that its end restarts nothing.
func (r *Record) retainPods(use InUse, now time.Time) {
	for key := range r.Good {
		file, container, _ := strings.Cut(key, "/")
		if p, known := use.Pods[file]; !known || !p.Broken && p.Contains != nil && !p.Contains[container] {
			delete(r.Good, key)
		}
	}
	maps.DeleteFunc(r.Failed, func(file string, f Failure) bool {
		p, known := use.Pods[file]
		if !known || f.Runs != "" {
			return !known || p.AllRun && !r.runsUnproved(file, p)
		}
		return p.ID != "" && f.Offer != p.ID || p.Settled
	})
	maps.DeleteFunc(r.Approved, func(file string, a Approval) bool { return !r.isOpen(file, use.Pods, a, now) })
	r.Wrote.Retain(use.Wrote)
}

// isOpen reports whether what was approved is still to be applied, or to be proved.
func (r *Record) isOpen(file string, pods map[string]PodInUse, a Approval, now time.Time) bool {
	p, known := pods[file]
	return known && !p.Held && a.Stands(now) && (p.Offer == a.Offer || p.ID == a.Offer && r.runsUnproved(file, p))
}

// runsUnproved reports whether a pod runs what is not known to run well.
func (r *Record) runsUnproved(file string, p PodInUse) bool {
	return slices.ContainsFunc(p.Images, func(i ImageInUse) bool {
		g := r.Good[GoodKey(file, i.Container)]
		return i.IsContainer && i.Running != "" && g.Running != "" && !r.IsGood(g, i.Repository, i.Running, i.Config)
	})
}

// hasEnded reports whether an override has ended: the pod manifest is gone or edited, or
// a newer release has taken every place.
func (r *Record) hasEnded(o Override, file string, pods map[string]PodInUse) bool {
	p, known := pods[file]
	switch {
	case !known || p.OnDisk == nil || o.Pending && !o.Fits(*p.OnDisk):
		return true
	case o.Pending || p.Unclear || o.isIn(*p.OnDisk):
		return false // what it names follows a tag all the same
	case !r.hasDenied(file):
		return true // it was only for as long as the registry was away, and somebody has ended it
	}
	return !slices.ContainsFunc(p.Images, func(i ImageInUse) bool {
		at, ok := o.Images[i.Place]
		return ok && at.Digest == i.Target
	})
}

// hasDenied reports whether a pod did not come up with a release of now.
func (r *Record) hasDenied(file string) bool {
	for _, d := range r.Denied {
		if d.PodManifest == file && !d.Past {
			return true
		}
	}
	return false
}

// retainDenied removes the denials that nothing names any more. A digest that came
// back may have been away for a while, as when its tag named another one in between, so
// each stays for long. Of a pod of which that is not known all stay.
func (r *Record) retainDenied(use InUse, now time.Time) {
	others := map[string][]string{} // by repository
	for key, d := range r.Denied {
		repository, _, _ := strings.Cut(key, "@")
		age, newest := now.Sub(d.lastNamed()), use.Newest[repository]
		older := policy.IsCreation(d.Created, now) && !newest.IsZero() && !newest.After(d.Created)
		switch {
		case use.Releases[key], use.Pods[d.PodManifest].Unclear:
			d.Named, d.Past = now.UTC().Truncate(24*time.Hour), false
			r.Denied[key] = d
		case age > denialAge, age < -denialAge:
			delete(r.Denied, key)
		default:
			d.Past = d.Past || !older
			r.Denied[key] = d
			others[repository] = append(others[repository], key)
		}
	}
	for _, keys := range others {
		slices.SortFunc(keys, func(x, y string) int {
			return cmp.Or(r.Denied[y].lastNamed().Compare(r.Denied[x].lastNamed()), strings.Compare(x, y))
		})
		for _, key := range keys[min(len(keys), maxDenials):] {
			delete(r.Denied, key)
		}
	}
}
