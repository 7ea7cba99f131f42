// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Denial is why a release is not offered again on this node, until a person says
// otherwise or it proves itself.
type Denial struct {
	At          time.Time `json:"at"`
	Name        string    `json:"name"` // the release's best name
	Created     time.Time `json:"created,omitzero"`
	PodManifest string    `json:"podManifest"`
	Reason      string    `json:"reason"`
	ByHand      bool      `json:"byHand,omitempty"` // a person rolled it back
	// Named is the day on which the source named it last, or the node ran it.
	Named time.Time `json:"named,omitzero"`
	// Past: a newer release is there, and nothing names this one any more. It stays
	// refused, and is no trouble of now.
	Past bool `json:"past,omitempty"`
}

// deny keeps that a release did not come up.
func (r *Record) deny(key string, d Denial) {
	if r.Denied == nil {
		r.Denied = map[string]Denial{}
	}
	r.Denied[key] = d
}

// denies refuses a release that did not come up here, by whatever name: a digest is
// its content.
func (r *Record) denies(rel Release) (Refusal, bool) {
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; rel.Digest != "" && strings.HasSuffix(key, "@"+rel.Digest.String()) {
			return Refusal{Tag: rel.Name(), Rule: RuleFailed, Reason: d.PodManifest + ": " + d.Reason}, true
		}
	}
	return Refusal{}, false
}

// hasFailed reports whether a release of that name did not come up here.
func (r *Record) hasFailed(repository, name string) bool {
	for key, d := range r.Denied {
		if d.Name == name && strings.HasPrefix(key, repository+"@") {
			return true
		}
	}
	return false
}

// allow takes back what was denied of a pod's images, and what failed of it.
func (r *Record) allow(p PodPlan) {
	for _, i := range p.Images {
		for _, rel := range i.Offer.known() {
			delete(r.Denied, releaseKey(i.Want.Ask.Repository, rel.Digest))
		}
		delete(r.Denied, releaseKey(i.Want.Ask.Repository, i.Running.Digest))
	}
	delete(r.Failed, p.File)
	if r.Overrides[p.File].Pending {
		delete(r.Overrides, p.File)
	}
}

// A denial is forgotten when nothing has named its release for denialAge, and of
// more than maxDenials in one repository the one that was named longest ago.
const (
	denialAge  = 90 * 24 * time.Hour
	maxDenials = 32
)

// forgetDenied drops the denials that nothing names any more. A digest that came
// back may have been away for a while, as when its tag named another one in
// between, so each stays for long. Of a pod of which that is not known all stay.
func (r *Record) forgetDenied(plan Plan, offers map[Question]Offer, now time.Time) {
	named, unclear := map[string]bool{}, map[string]bool{}
	newest := map[string]time.Time{} // by repository
	for _, p := range plan.Pods {
		unclear[p.File] = p.Err != nil || p.withheld() || r.Overrides[p.File].Pending
		for _, i := range p.Images {
			named[releaseKey(i.Want.Ask.Repository, i.Running.Digest)] = true
		}
	}
	for _, o := range offers {
		for _, rel := range o.known() {
			named[releaseKey(rel.Repository, rel.Digest)] = true
			if isCreation(rel.Created, now) && rel.Created.After(newest[rel.Repository]) {
				newest[rel.Repository] = rel.Created
			}
		}
	}
	others := map[string][]string{} // by repository, the one that was named last first
	for key, d := range r.Denied {
		repository, _, _ := strings.Cut(key, "@")
		age := now.Sub(d.lastNamed())
		older := isCreation(d.Created, now) && !newest[repository].IsZero() && !newest[repository].After(d.Created)
		switch {
		case named[key], unclear[d.PodManifest]:
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

func (d Denial) lastNamed() time.Time {
	if d.Named.After(d.At) {
		return d.Named
	}
	return d.At
}
