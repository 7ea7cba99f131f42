// SPDX-License-Identifier: Apache-2.0

package agent

import (
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

// Denies refuses a release that did not come up here, by whatever name: a digest is
// its content.
func (r *Record) Denies(rel Release) (Refusal, bool) {
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; rel.Digest != "" && strings.HasSuffix(key, "@"+rel.Digest.String()) {
			return Refusal{Tag: rel.Name(), Rule: RuleFailed, Reason: d.PodManifest + ": " + d.Reason}, true
		}
	}
	return Refusal{}, false
}

// HasFailed reports whether a release of that name did not come up here.
func (r *Record) HasFailed(repository, name string) bool {
	for key, d := range r.Denied {
		if d.Name == name && strings.HasPrefix(key, repository+"@") {
			return true
		}
	}
	return false
}

// Allow takes back the denials of releases ("repository@digest"), and the failure of
// their pod manifest.
func (r *Record) Allow(file string, releases []string) {
	for _, key := range releases {
		r.Denied.Delete(key)
	}
	r.Failed.Delete(file)
	if r.Overrides[file].Pending {
		r.Overrides.Delete(file)
	}
}

// A denial is forgotten when nothing has named its release for denialAge, and of
// more than maxDenials in one repository the one that was named longest ago.
const (
	denialAge  = 90 * 24 * time.Hour
	maxDenials = 32
)

func (d Denial) lastNamed() time.Time {
	if d.Named.After(d.At) {
		return d.Named
	}
	return d.At
}

// unproved refuses a release that is not signed well, where that is required.
func (r *Record) unproved(rel Release, rule Rule) (Refusal, bool) {
	u, is := r.Unproved[releaseKey(rel.Repository, rel.Digest)]
	if !is || rule.Signatures != SignaturesRequire {
		return Refusal{}, false
	}
	again := u.RetryAt.UTC()
	return Refusal{
		Tag: rel.Name(), Rule: RuleSignature, RetryAt: again,
		Reason: u.Reason + "; looked for again at " + again.Format(time.RFC3339),
	}, true
}

// Refuses tells by which rule a release may not be offered, whatever runs.
func (r *Record) Refuses(rel Release, rule Rule) (Refusal, bool) {
	if no, refused := rule.refuses(rel); refused {
		return no, true
	}
	if no, refused := r.Denies(rel); refused {
		return no, true
	}
	return r.unproved(rel, rule)
}
