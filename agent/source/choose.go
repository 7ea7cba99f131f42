// SPDX-License-Identifier: Apache-2.0

package source

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Choice is the part of an offer that the current rules allow.
type Choice struct {
	Newest         release.Release  // the newest allowed release; Follow if none is newer
	Refused        []policy.Refusal // the highest first
	RunningRefused policy.Refusal   // of the running release
	Notes          []string
	// Unresolved is the index in Newer of the highest candidate above Newest that must be resolved before the rules can
	// allow it; -1 if there is none.
	Unresolved int
}

// Choose finds the newest release that the rules allow. It is pure, and the only code that applies rules to candidates.
// against refuses releases for reasons other than their tags. Unless the rule allows older ones, a release that is
// newer than the followed one by name and older by time is chosen only if no other is allowed; Notes name it.
func (o Offer) Choose(rule policy.Rule, now time.Time, against func(release.Release) (policy.Refusal, bool)) Choice {
	c := Choice{Newest: o.Follow, Unresolved: -1}
	from, err := rule.Scheme.Parse(o.Follow.Tag)
	if err != nil {
		return c // nothing is newer than an unrecognized tag
	}
	for n, candidate := range o.Newer {
		t, err := rule.Scheme.Parse(candidate.ListedTag())
		change := tags.ChangeBetween(from, t)
		if err != nil || change <= tags.Same || !tags.InLine(from, t) {
			continue
		}
		no, refused := o.refuses(candidate, rule, t, change, against)
		if refused {
			c.Refused = append(c.Refused, no)
			continue
		}
		if !candidate.Confirmed {
			if c.Unresolved < 0 {
				c.Unresolved = n
			}
			continue
		}
		odd := policy.Contradiction(o.Follow, candidate.Release, rule.Scheme, now)
		if odd != "" {
			c.Notes = append(c.Notes, odd)
		}
		if odd == "" || rule.Older {
			c.Newest = candidate.Release
			return c
		}
		if c.Newest.Digest == o.Follow.Digest {
			c.Newest = candidate.Release
		}
	}
	return c
}

// refuses returns why a candidate is refused: by its tag, by the source's answer about it, or by what is known of its
// digest.
func (o Offer) refuses(
	candidate record.Candidate, rule policy.Rule, t tags.Tag, change tags.Change,
	against func(release.Release) (policy.Refusal, bool),
) (policy.Refusal, bool) {
	no, refused := refusesByTag(candidate, rule, t, change)
	if refused || candidate.Digest == "" {
		return no, refused
	}
	if no, refused = against(candidate.Release); refused {
		return no, true
	}
	return policy.ForeignOrigin(o.Follow, candidate.Release)
}

// refusesByTag refuses a candidate by its tag, or by the source's answer about it.
func refusesByTag(c record.Candidate, rule policy.Rule, t tags.Tag, change tags.Change) (policy.Refusal, bool) {
	if no, refused := rule.RefusesTag(t, change); refused || c.Refusal == nil {
		return no, refused
	}
	return *c.Refusal, true
}

// candidates selects the tags of a list that an offer keeps: the highest tags above the followed one, both allowed and
// refused by the rule, and the highest for each setting that would allow it.
func candidates(list []tags.Tag, from tags.Tag, rule policy.Rule) []record.Candidate {
	var out []record.Candidate
	left := map[bool]int{false: maxCandidates, true: MaxRefused} // by whether it is refused
	settings := map[string]bool{}
	for _, t := range list {
		change := tags.ChangeBetween(from, t)
		if !tags.InLine(from, t) || change <= tags.Same {
			continue
		}
		no, refused := rule.RefusesTag(t, change)
		if isFirst := refused && !settings[no.Setting()]; isFirst || left[refused] > 0 {
			left[refused]--
			settings[no.Setting()] = true
			out = append(out, record.Candidate{Release: release.Release{Tag: t.String()}})
		}
	}
	return out
}
