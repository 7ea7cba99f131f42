// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Choice is what the rules of now make of an offer.
type Choice struct {
	Newest  release.Release  // that may take the place of what is followed; Follow where none may
	Refused []policy.Refusal // the highest first
	Runs    policy.Refusal   // what speaks against what runs already
	Notes   []string
	// Unasked is the highest candidate above newest of which the rules need to know
	// more before they can allow it, by its place in Newer; -1: none.
	Unasked int
}

// Choose finds the newest release that the rules of now allow. It is pure, and
// the one place where rules meet candidates: asking goes on as long as it leaves
// one unasked, and Decide takes what it finds. against tells what speaks against a
// release beside the rules for tags.
func (o Offer) Choose(rule policy.Rule, now time.Time, against func(release.Release) (policy.Refusal, bool)) Choice {
	c := Choice{Newest: o.Follow, Unasked: -1}
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil {
		return c // a foreign tag has no newer ones
	}
	for n, candidate := range o.Newer {
		t, err := rule.Dialect.Parse(candidate.ListedTag())
		if err != nil || tags.ChangeBetween(from, t) <= tags.Same {
			continue
		}
		no, refused := refusedCandidate(candidate, rule, t, tags.ChangeBetween(from, t))
		if !refused && candidate.Digest != "" {
			if no, refused = against(candidate.Release); !refused {
				no, refused = policy.ForeignOrigin(o.Follow, candidate.Release)
			}
		}
		switch {
		case refused:
			c.Refused = append(c.Refused, no)
		case !candidate.Settled:
			if c.Unasked < 0 {
				c.Unasked = n
			}
		default:
			c.Newest = candidate.Release
			if policy.IsEarlier(c.Newest, o.Follow, now) {
				c.Notes = append(c.Notes, policy.EarlierThan(c.Newest, o.Follow))
			}
			return c
		}
	}
	return c
}

// refusedCandidate tells what speaks against a candidate before anybody knows what it
// names, and what the source said of it.
func refusedCandidate(c record.Candidate, rule policy.Rule, t tags.Tag, change tags.Change) (policy.Refusal, bool) {
	if no, refused := rule.RefusesTag(t, change); refused {
		return no, true
	}
	if c.No != nil {
		return *c.No, true
	}
	return policy.Refusal{}, false
}

// candidates chooses from a list, newest first, what an offer keeps: the highest
// tags above the followed one, the highest for each setting that would allow it, and
// the highest of those that the rule allows by
// their names, as many as are asked for.
func candidates(list []tags.Tag, from tags.Tag, rule policy.Rule) []record.Candidate {
	var out []record.Candidate
	left := map[bool]int{false: maxCandidates, true: MaxRefused} // by whether it is refused
	told := map[string]bool{}                                    // what would allow it
	for _, t := range list {
		change := tags.ChangeBetween(from, t)
		if !tags.SamePrecision(from, t) || change <= tags.Same {
			continue
		}
		no, refused := rule.RefusesTag(t, change)
		if first := refused && !told[no.Setting()]; first || left[refused] > 0 {
			left[refused]--
			told[no.Setting()] = true
			out = append(out, record.Candidate{Release: release.Release{Tag: t.Wire()}})
		}
	}
	return out
}

// Known are the releases that an offer knows.
func (o Offer) Known() []release.Release {
	return releasesOf(o.Follow, o.Newest, o.Newer)
}

// withNewest is an offer of an older agent, which kept of all candidates the one
// that its rules allowed.
func withNewest(follow, newest release.Release, newer []record.Candidate) []record.Candidate {
	if len(newer) > 0 || newest.Digest == "" || newest.Tag == follow.Tag {
		return newer
	}
	return slices.Clip([]record.Candidate{{Release: newest, Settled: true}})
}
