// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Offer is the source's answer to one question. If the source does not answer, it is the last answer, and Err has the
// reason.
type Offer struct {
	release.Question
	record.Answer
	// Err without Follow: the image is unresolved, and its pod gets the hold `unresolved`. Err with Follow: the offer
	// is the last answer.
	Err error
}

// MaxRefused limits the refusals of an offer.
const MaxRefused = 16

// refuse adds a refusal.
func (o *Offer) refuse(tag, rule, format string, args ...any) {
	if len(o.Refused) < MaxRefused {
		o.Refused = append(o.Refused, policy.Refusal{Tag: tag, Rule: rule, Reason: fmt.Sprintf(format, args...)})
	}
}

// keepSince copies the start of each refusal from the last answer if that has it.
func (o *Offer) keepSince(last record.Answer, now time.Time) {
	for n, no := range o.Refused {
		o.Refused[n].Since = now.UTC().Round(0)
		for _, was := range last.Refused {
			if was.Tag == no.Tag && was.Rule == no.Rule && !was.Since.IsZero() && !was.Since.After(now) {
				o.Refused[n].Since = was.Since
			}
		}
	}
}

// IsUnresolved reports whether no release of the image is known.
func (o Offer) IsUnresolved() bool { return o.Follow.Digest == "" }

// Known returns the releases of an offer.
func (o Offer) Known() []release.Release {
	out := []release.Release{o.Follow, o.Newest}
	for _, c := range o.Newer {
		if c.Digest != "" {
			out = append(out, c.Release)
		}
	}
	return out
}

// LastOffer returns the last answer to a question as an offer. err is why there is no newer one; ErrNotAsked is not
// reported next to an answer.
func LastOffer(r *record.Record, q release.Question, err error) Offer {
	last, ok := lastAnswer(r, q)
	switch {
	case !ok:
		if s := r.Sources[q.Repository]; errors.Is(err, release.ErrNotAsked) && s.Failures > 0 {
			err = s.Err(q.Repository)
		}
		return Offer{Question: q, Err: err}
	case last.Error != "":
		cause := release.ErrPlatform
		switch {
		case last.Gone:
			cause = release.ErrNotFound
		case last.Unlisted:
			cause = release.ErrUnlisted
		}
		return Offer{Question: q, Err: &release.RecordedError{Text: last.Error, Cause: cause}}
	case errors.Is(err, release.ErrNotAsked):
		err = nil
	}
	if len(last.Newer) == 0 && last.Newest.Digest != "" && last.Newest.Tag != last.Follow.Tag {
		// An older agent kept only the candidate that its rules allowed.
		last.Newer = []record.Candidate{{Release: last.Newest, Confirmed: true}}
	}
	return Offer{Question: q, Answer: last, Err: err}
}

// lastAnswer returns the last answer to a question. After an apply the pod manifest names another tag, which is a new
// question: the applied offer becomes its answer.
func lastAnswer(r *record.Record, q release.Question) (record.Answer, bool) {
	if answer, ok := r.Offers[q.String()]; ok {
		return answer, true
	}
	var best record.Answer
	for _, key := range slices.Sorted(maps.Keys(r.Offers)) {
		answer := r.Offers[key]
		isWritten := strings.HasSuffix(key, release.AsWrittenSuffix)
		if q.Tag == "" || answer.Follow.Repository != q.Repository || isWritten == q.Convert {
			continue
		}
		for _, rel := range answer.Confirmed() {
			if rel.Tag == q.Tag && answer.At.After(best.At) {
				best = answer
				best.Follow, best.Refused, best.Notes, best.LooksNewer = rel, nil, nil, nil
			}
		}
	}
	if best.Follow.Digest == "" {
		return record.Answer{}, false
	}
	r.Offers.Set(q.String(), best)
	return best, true
}

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
	no, refused := rule.RefusesTag(t, change)
	if !refused && candidate.Refusal != nil {
		no, refused = *candidate.Refusal, true
	}
	if refused || candidate.Digest == "" {
		return no, refused
	}
	if no, refused = against(candidate.Release); refused {
		return no, true
	}
	return policy.ForeignOrigin(o.Follow, candidate.Release)
}

// candidates selects the tags of a list that an offer keeps: the highest tags above the followed one, both allowed and
// refused by the rule, and the highest for each setting that would allow it.
func candidates(list []tags.Tag, from tags.Tag, rule policy.Rule) []record.Candidate {
	var out []record.Candidate
	left := map[bool]int{false: maxCandidates, true: MaxRefused} // by whether it is refused
	settings := map[string]bool{}
	isFloating := tags.FloatsFor(from, list)
	for _, t := range list {
		change := tags.ChangeBetween(from, t)
		if !tags.InLine(from, t) || change <= tags.Same || isFloating(t) {
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
