// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/tags"
)

// Candidate is a tag above the followed one, as the source has it. What the
// rules say of it is not kept: they are asked anew for each plan.
type Candidate struct {
	// Release is what it names; nothing but the tag where no rule of then needed
	// that to be asked for.
	Release
	// Listed is the tag in the list, where another one stands for it in Release.
	Listed string `json:"listed,omitempty"`
	// No is why nobody can run it, whatever the rules are; nil: nothing is known
	// against it.
	No *Refusal `json:"no,omitempty"`
	// Settled: what it names was read as often as it takes for it to be offered.
	Settled bool `json:"settled,omitempty"`
}

// listed is the tag that the source lists.
func (c Candidate) listed() string {
	if c.Listed != "" {
		return c.Listed
	}
	return c.Tag
}

// choice is what the rules of now make of an offer.
type choice struct {
	newest  Release   // that may take the place of what is followed; Follow where none may
	refused []Refusal // the highest first
	runs    Refusal   // what speaks against what runs already
	notes   []string
	// unasked is the highest candidate above newest of which the rules need to know
	// more before they can allow it, by its place in Newer; -1: none.
	unasked int
}

// choose finds the newest release that the rules of now allow. It is pure, and
// the one place where rules meet candidates: asking goes on as long as it leaves
// one unasked, and Decide takes what it finds. against tells what speaks against a
// release beside the rules for tags.
func (o Offer) choose(rule Rule, now time.Time, against func(Release) (Refusal, bool)) choice {
	c := choice{newest: o.Follow, unasked: -1}
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil {
		return c // a foreign tag has no newer ones
	}
	for n, candidate := range o.Newer {
		t, err := rule.Dialect.Parse(candidate.listed())
		if err != nil || tags.ChangeBetween(from, t) <= tags.Same {
			continue
		}
		no, refused := candidate.refused(rule, t, tags.ChangeBetween(from, t))
		if !refused && candidate.Digest != "" {
			if no, refused = against(candidate.Release); !refused {
				no, refused = stranger(o.Follow, candidate.Release)
			}
		}
		switch {
		case refused:
			c.refused = append(c.refused, no)
		case !candidate.Settled:
			if c.unasked < 0 {
				c.unasked = n
			}
		default:
			c.newest = candidate.Release
			if isEarlier(c.newest, o.Follow, now) {
				c.notes = append(c.notes, earlierThan(c.newest, o.Follow))
			}
			return c
		}
	}
	return c
}

// refused tells what speaks against a candidate before anybody knows what it
// names, and what the source said of it.
func (c Candidate) refused(rule Rule, t tags.Tag, change tags.Change) (Refusal, bool) {
	if no, refused := rule.refusesTag(t, change); refused {
		return no, true
	}
	if c.No != nil {
		return *c.No, true
	}
	return Refusal{}, false
}

// candidates chooses from a list, newest first, what an offer keeps: the highest
// tags above the followed one, the highest for each setting that would allow it, and
// the highest of those that the rule allows by
// their names, as many as are asked for.
func candidates(list []tags.Tag, from tags.Tag, rule Rule) []Candidate {
	var out []Candidate
	left := map[bool]int{false: maxCandidates, true: maxRefused} // by whether it is refused
	told := map[string]bool{}                                    // what would allow it
	for _, t := range list {
		change := tags.ChangeBetween(from, t)
		if !tags.SamePrecision(from, t) || change <= tags.Same {
			continue
		}
		no, refused := rule.refusesTag(t, change)
		if first := refused && !told[no.key()]; first || left[refused] > 0 {
			left[refused]--
			told[no.key()] = true
			out = append(out, Candidate{Release: Release{Tag: t.Wire()}})
		}
	}
	return out
}

// known are the releases that an offer knows.
func (o Offer) known() []Release {
	return releasesOf(o.Follow, o.Newest, o.Newer)
}

func releasesOf(follow, newest Release, newer []Candidate) []Release {
	out := []Release{follow, newest}
	for _, c := range newer {
		if c.Digest != "" {
			out = append(out, c.Release)
		}
	}
	return out
}

// asks identifies what of a rule decides what a source is asked for: after a
// change the last answer may lack what is allowed now.
func (r Rule) asks() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %q %q %s", r.Updates, r.Dialect, r.Follow, r.Allow, r.Deny, r.Max))
	return hex.EncodeToString(sum[:8])
}

// withNewest is an offer of an older agent, which kept of all candidates the one
// that its rules allowed.
func withNewest(follow, newest Release, newer []Candidate) []Candidate {
	if len(newer) > 0 || newest.Digest == "" || newest.Tag == follow.Tag {
		return newer
	}
	return slices.Clip([]Candidate{{Release: newest, Settled: true}})
}
