// SPDX-License-Identifier: Apache-2.0

package source

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Choice is what the rules of now allow of an offer.
type Choice struct {
	Newest         release.Release  // the newest allowed release; Follow where none is newer
	Refused        []policy.Refusal // the highest first
	RunningRefused policy.Refusal   // of what runs already
	Notes          []string
	// Unresolved is the index in Newer of the highest candidate above Newest that has to be
	// resolved before the rules can allow it; -1: none.
	Unresolved int
}

// Choose finds the newest release that the rules allow. It is pure, and the only place
// where rules meet candidates. against refuses releases for reasons beside their tags.
func (o Offer) Choose(rule policy.Rule, now time.Time, against func(release.Release) (policy.Refusal, bool)) Choice {
	c := Choice{Newest: o.Follow, Unresolved: -1}
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil {
		return c // nothing is newer than a foreign tag
	}
	for n, candidate := range o.Newer {
		t, err := rule.Dialect.Parse(candidate.ListedTag())
		change := tags.ChangeBetween(from, t)
		if err != nil || change <= tags.Same {
			continue
		}
		no, refused := refusesByTag(candidate, rule, t, change)
		if !refused && candidate.Digest != "" {
			if no, refused = against(candidate.Release); !refused {
				no, refused = policy.ForeignOrigin(o.Follow, candidate.Release)
			}
		}
		switch {
		case refused:
			c.Refused = append(c.Refused, no)
		case !candidate.Confirmed:
			if c.Unresolved < 0 {
				c.Unresolved = n
			}
		default:
			c.Newest = candidate.Release
			if text := policy.Contradiction(o.Follow, c.Newest, rule.Dialect, now); text != "" {
				c.Notes = append(c.Notes, text)
			}
			return c
		}
	}
	return c
}

// refusesByTag refuses a candidate by its tag, or by what the source answered about it.
func refusesByTag(c record.Candidate, rule policy.Rule, t tags.Tag, change tags.Change) (policy.Refusal, bool) {
	if no, refused := rule.RefusesTag(t, change); refused || c.Refusal == nil {
		return no, refused
	}
	return *c.Refusal, true
}

// candidates selects what an offer keeps of a tag list: the highest tags above the followed
// one, of those that the rule allows and of those that it refuses, and the highest for each
// setting that would allow it.
func candidates(list []tags.Tag, from tags.Tag, rule policy.Rule) []record.Candidate {
	var out []record.Candidate
	left := map[bool]int{false: maxCandidates, true: MaxRefused} // by whether it is refused
	settings := map[string]bool{}
	for _, t := range list {
		change := tags.ChangeBetween(from, t)
		if !tags.SamePrecision(from, t) || change <= tags.Same {
			continue
		}
		no, refused := rule.RefusesTag(t, change)
		if isFirst := refused && !settings[no.Setting()]; isFirst || left[refused] > 0 {
			left[refused]--
			settings[no.Setting()] = true
			out = append(out, record.Candidate{Release: release.Release{Tag: t.Wire()}})
		}
	}
	return out
}
