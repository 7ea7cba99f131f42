// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Denial is why a release is not offered again on this node, until a newer one is
// there or a person says otherwise.
type Denial struct {
	At          time.Time `json:"at"`
	Name        string    `json:"name"` // the release's best name
	Created     time.Time `json:"created,omitzero"`
	PodManifest string    `json:"podManifest"`
	Reason      string    `json:"reason"`
	ByHand      bool      `json:"byHand,omitempty"` // a person rolled it back
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
			return Refusal{rel.Name(), RuleFailed, d.PodManifest + ": " + d.Reason}, true
		}
	}
	return Refusal{}, false
}

// allow takes back what was denied of a pod's images, and what failed of it.
func (r *Record) allow(p PodPlan) {
	for _, i := range p.Images {
		for _, rel := range []Release{i.Offer.Follow, i.Offer.Newest} {
			delete(r.Denied, releaseKey(i.Want.Ask.Repository, rel.Digest))
		}
		delete(r.Denied, releaseKey(i.Want.Ask.Repository, i.Running.Digest))
	}
	delete(r.Failed, p.File)
	if r.Overrides[p.File].Pending {
		delete(r.Overrides, p.File)
	}
}

// denialAge is when a denial is forgotten that nothing has ended.
const denialAge = 90 * 24 * time.Hour

// forgetDenied drops the denials that a newer release has ended: nothing names the
// denied one any more, and it is not that its tag went back for a while. Of a pod of
// which that is not known all stay.
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
		for _, rel := range []Release{o.Follow, o.Newest} {
			named[releaseKey(rel.Repository, rel.Digest)] = true
			if rel.Created.After(newest[rel.Repository]) {
				newest[rel.Repository] = rel.Created
			}
		}
	}
	maps.DeleteFunc(r.Denied, func(key string, d Denial) bool {
		repository, _, _ := strings.Cut(key, "@")
		older := !d.Created.IsZero() && !newest[repository].IsZero() && !newest[repository].After(d.Created)
		age := now.Sub(d.At)
		return !named[key] && !unclear[d.PodManifest] && (!older || age > denialAge || age < -denialAge)
	})
}
