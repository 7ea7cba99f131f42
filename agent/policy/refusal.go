// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Setting identifies the setting that would allow the tag.
func (r Refusal) Setting() string {
	if r.Rule == RuleUpdates {
		return r.Key
	}
	return r.Rule
}

// Refusal is a tag that is not offered, with the reason.
type Refusal struct {
	Tag    string `json:"tag"`
	Rule   string `json:"rule"` // a stable word, see the constants
	Reason string `json:"reason"`
	// Key is the setting that would allow it, as in "updates: minor"; empty if there is none.
	Key string `json:"key,omitempty"`
	// Since is when it was first seen, for RulePublishing.
	Since time.Time `json:"since,omitzero"`
	// Holds: the node is held until the refusal ends.
	Holds bool `json:"holds,omitempty"`
	// RetryAt is when the signature is verified again.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// publishingTime is how long a long tag without its floating one counts as being published. OBS takes minutes; after
// this time the build counts as withdrawn.
const publishingTime = 24 * time.Hour

// IsAwaited reports whether the refusal is expected to end without a person.
func (r Refusal) IsAwaited(now time.Time) bool {
	switch r.Rule {
	case RuleSignature, RuleOlder:
		return true
	case RulePublishing:
		return now.Sub(r.Since) < publishingTime
	}
	return false
}

// The rules that refuse a release; package catalog has those of a catalog. They are part of the machine interface.
const (
	RuleUpdates    = "updates"      // a larger change than the policy allows
	RuleAllow      = "allow"        // matches none of the allowed patterns
	RuleDeny       = "deny"         // matches a denied pattern or digest
	RuleMax        = "max"          // above the maximum
	RuleKubeadm    = "kubeadm"      // more than a patch for a control plane of kubeadm, and no pattern of allow matches
	RuleMissing    = "missing"      // listed, but not served
	RulePlatform   = "platform"     // not for this node
	RuleOrigin     = "origin"       // an image of another application, by its label
	RuleOlder      = "older"        // the tag was moved to an older build
	RuleSignature  = "signature"    // not signed (yet), or without a valid signature
	RulePublishing = "publishing"   // the long tag exists, its floating tag does not name it yet
	RuleConfirm    = "confirmAfter" // the second reading named another digest
	RuleFailed     = "failed"       // it did not come up on this node, or a person rolled it back
)

// RefusesListed refuses a release that the catalog withholds, or does not list.
func (p Policy) RefusesListed(l catalog.Listing, rel release.Release) (Refusal, bool) {
	rule, reason, key := p.Catalog.Refuses(l, rel)
	return Refusal{Tag: rel.Name(), Rule: rule, Reason: reason, Key: key}, rule != ""
}

// ByConfiguration returns the first refusal for each setting that would allow it.
func ByConfiguration(refused []Refusal) []Refusal {
	var out []Refusal
	for _, no := range refused {
		byRule := slices.Contains([]string{RuleUpdates, RuleMax, RuleAllow, RuleDeny, RuleKubeadm}, no.Rule)
		if byRule && !slices.ContainsFunc(out, func(o Refusal) bool { return o.Setting() == no.Setting() }) {
			out = append(out, no)
		}
	}
	return out
}

// String returns the refusal in one line.
func (r Refusal) String() string { return fmt.Sprintf("%s refused by %s: %s", r.Tag, r.Rule, r.Reason) }
