// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"
)

// Setting is the setting that would allow what is refused, whatever the tag is.
func (r Refusal) Setting() string {
	if r.Rule == RuleUpdates {
		return r.Key
	}
	return r.Rule
}

// Refusal is a tag that is not offered, and why.
type Refusal struct {
	Tag    string `json:"tag"`
	Rule   string `json:"rule"` // stable word, see the constants
	Reason string `json:"reason"`
	// Key is what would allow it in the configuration, as in "updates: minor"; empty:
	// nothing there, or it is no rule of the configuration.
	Key string `json:"key,omitempty"`
	// Since is when it was first seen, of what is being published.
	Since time.Time `json:"since,omitzero"`
	// Holds: it is waited for, and the node is held as long as it stands.
	Holds bool `json:"holds,omitempty"`
	// RetryAt is when a signature is looked for again.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// publishingTime is how long a long tag without its floating one counts as being
// published. OBS takes minutes; what stays so was withdrawn.
const publishingTime = 24 * time.Hour

// IsAwaited reports whether something newer is only waited for.
func (r Refusal) IsAwaited(now time.Time) bool {
	switch r.Rule {
	case RuleSignature, RuleOlder:
		return true
	case RulePublishing:
		return now.Sub(r.Since) < publishingTime
	}
	return false
}

// The rules that refuse a release. They are an interface, as holds are.
const (
	RuleUpdates    = "updates"      // a larger change than the policy allows
	RuleAllow      = "allow"        // matches none of the allowed patterns
	RuleDeny       = "deny"         // matches a denied pattern or digest
	RuleMax        = "max"          // above the highest that may be offered
	RuleKubeadm    = "kubeadm"      // more than a patch of a control plane of kubeadm, and no pattern of allow matches
	RuleMissing    = "missing"      // listed, but not served
	RulePlatform   = "platform"     // not for this node
	RuleOrigin     = "origin"       // an image of another application, by its own label
	RuleOlder      = "older"        // the tag went back to an older build
	RuleSignature  = "signature"    // not signed (yet), or not well
	RulePublishing = "publishing"   // the long tag is there, its floating tag does not name it yet
	RuleConfirm    = "confirmAfter" // the second reading named another digest
	RuleFailed     = "failed"       // it did not come up on this node, or a person rolled it back
)

// String is a refusal in one line.
func (r Refusal) String() string { return fmt.Sprintf("%s refused by %s: %s", r.Tag, r.Rule, r.Reason) }
