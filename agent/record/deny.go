// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
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
func (r *Record) Denies(rel release.Release) (policy.Refusal, bool) {
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; rel.Digest != "" && strings.HasSuffix(key, "@"+rel.Digest.String()) {
			return policy.Refusal{Tag: rel.Name(), Rule: policy.RuleFailed, Reason: d.PodManifest + ": " + d.Reason}, true
		}
	}
	return policy.Refusal{}, false
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
func (r *Record) unproved(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	u, is := r.Unproved[release.Key(rel.Repository, rel.Digest)]
	if !is || rule.Signatures != policy.SignaturesRequire {
		return policy.Refusal{}, false
	}
	again := u.RetryAt.UTC()
	return policy.Refusal{
		Tag: rel.Name(), Rule: policy.RuleSignature, RetryAt: again,
		Reason: u.Reason + "; looked for again at " + again.Format(time.RFC3339),
	}, true
}

// Refuses tells by which rule a release may not be offered, whatever runs.
func (r *Record) Refuses(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := rule.Refuses(rel); refused {
		return no, true
	}
	if no, refused := r.Denies(rel); refused {
		return no, true
	}
	return r.unproved(rel, rule)
}
