// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Offer is what the source has for one question. Where the source does not
// answer, it is the last answer, with Err saying since when it is only that.
type Offer struct {
	Question
	Follow Release // what the followed tag names now
	// Newest is the newest release that the rules allowed when it was asked for;
	// Follow where none was newer. Decide finds it anew, by the rules of now.
	Newest Release
	// Newer are the tags above Follow, the highest first: see candidates.
	Newer []Candidate
	// Host answered; Mirror: it is not the one that the repository names.
	Host   string
	Mirror bool
	// Refused are the tags that might have been offered, and by which rule they
	// are not: the highest first, at most maxRefused. A source's offer has those
	// that no rule of the configuration changes; Decide adds the others.
	Refused []Refusal
	Notes   []string
	// StageFrom is when staging may begin on this node.
	StageFrom time.Time
	// Err with a zero Follow: unresolved, the pod is withheld. Err with a
	// Follow: remembered.
	Err error
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

// holds reports whether something newer is only waited for.
func (r Refusal) holds(now time.Time) bool {
	switch r.Rule {
	case RuleSignature, RuleOlder:
		return true
	case RulePublishing:
		return now.Sub(r.Since) < publishingTime
	}
	return false
}

// firstSeen keeps since when a refusal stands.
func (o *Offer) firstSeen(last Remembered, now time.Time) {
	for n, no := range o.Refused {
		o.Refused[n].Since = now.UTC().Round(0)
		for _, was := range last.RefusedTags {
			if was.Tag == no.Tag && was.Rule == no.Rule && !was.Since.IsZero() && !was.Since.After(now) {
				o.Refused[n].Since = was.Since
			}
		}
	}
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

// maxRefused bounds what is kept of refusals: a person reads the highest.
const maxRefused = 16

// refuse notes a refusal.
func (o *Offer) refuse(tag, rule, format string, args ...any) {
	if len(o.Refused) < maxRefused {
		o.Refused = append(o.Refused, Refusal{Tag: tag, Rule: rule, Reason: fmt.Sprintf(format, args...)})
	}
}

// Unresolved reports that nothing is known of the image.
func (o Offer) Unresolved() bool { return o.Follow.Digest == "" }

// errNotAsked stands in an offer that no poll has answered yet.
var errNotAsked = errors.New("not asked yet")

// LastOffer is the last answer to a question. err says why there is no newer one; an
// answer that nobody was to renew is not a failure.
func LastOffer(r *Record, q Question, err error) Offer {
	m, ok := recall(r, q)
	switch {
	case !ok:
		if s := r.Sources[q.Repository]; errors.Is(err, errNotAsked) && s.Failures > 0 {
			err = s.err(q.Repository) // asked, and not answered
		}
		return Offer{Question: q, Err: err}
	case m.Refused != "":
		cause := ErrPlatform
		if m.Gone {
			cause = ErrNotFound
		}
		return Offer{Question: q, Err: &refusal{m.Refused, cause}}
	case errors.Is(err, errNotAsked):
		err = nil
	}
	return Offer{
		Question: q, Follow: m.Follow, Newest: m.Newest, Newer: withNewest(m.Follow, m.Newest, m.Newer),
		Host: m.Host, Mirror: m.Mirror,
		Refused: m.RefusedTags, Notes: m.Notes, StageFrom: m.StageFrom, Err: err,
	}
}

// remembered is the offer as the record keeps it.
func (o Offer) remembered(now time.Time, rule Rule) Remembered {
	return Remembered{
		At: now, Rules: rule.asks(), Follow: o.Follow, Newest: o.Newest, Newer: o.Newer, Host: o.Host, Mirror: o.Mirror,
		RefusedTags: o.Refused, Notes: o.Notes, StageFrom: o.StageFrom,
	}
}

// refusal is a source's answer as the record keeps it.
type refusal struct {
	text  string
	cause error // ErrNotFound or ErrPlatform
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.cause }

// recall finds the last answer to a question. Once an offer is applied, the pod
// manifest names another tag and so asks another question: what was offered is
// the answer to it, and is kept as that.
func recall(r *Record, q Question) (Remembered, bool) {
	if m, ok := r.Offers[q.String()]; ok {
		return m, true
	}
	var best Remembered
	for _, key := range slices.Sorted(maps.Keys(r.Offers)) {
		m := r.Offers[key]
		if q.Tag == "" || m.Follow.Repository != q.Repository || strings.HasSuffix(key, asWritten) == q.Convert {
			continue
		}
		for _, f := range []Release{m.Follow, m.Newest} {
			if f.Tag == q.Tag && m.At.After(best.At) {
				best = m
				best.Follow, best.RefusedTags, best.Notes = f, nil, nil
			}
		}
	}
	if best.Follow.Digest == "" {
		return Remembered{}, false
	}
	r.Offers.Set(q.String(), best)
	return best, true
}
