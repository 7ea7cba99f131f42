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
)

// Offer is what the source has for one question. Where the source does not
// answer, it is the last answer, with Err saying since when it is only that.
type Offer struct {
	release.Question
	Follow release.Release // what the followed tag names now
	// Newest is the newest release that the rules allowed when it was asked for;
	// Follow where none was newer. Decide finds it anew, by the rules of now.
	Newest release.Release
	// Newer are the tags above Follow, the highest first: see candidates.
	Newer []record.Candidate
	// Host answered; Mirror: it is not the one that the repository names.
	Host   string
	Mirror bool
	// Refused are the tags that might have been offered, and by which rule they
	// are not: the highest first, at most MaxRefused. A source's offer has those
	// that no rule of the configuration changes; Decide adds the others.
	Refused []policy.Refusal
	Notes   []string
	// StageFrom is when staging may begin on this node.
	StageFrom time.Time
	// Err with a zero Follow: unresolved, the pod is withheld. Err with a
	// Follow: remembered.
	Err error
}

// firstSeen keeps since when a refusal stands.
func (o *Offer) firstSeen(last record.Answer, now time.Time) {
	for n, no := range o.Refused {
		o.Refused[n].Since = now.UTC().Round(0)
		for _, was := range last.RefusedTags {
			if was.Tag == no.Tag && was.Rule == no.Rule && !was.Since.IsZero() && !was.Since.After(now) {
				o.Refused[n].Since = was.Since
			}
		}
	}
}

// MaxRefused bounds what is kept of refusals: a person reads the highest.
const MaxRefused = 16

// refuse notes a refusal.
func (o *Offer) refuse(tag, rule, format string, args ...any) {
	if len(o.Refused) < MaxRefused {
		o.Refused = append(o.Refused, policy.Refusal{Tag: tag, Rule: rule, Reason: fmt.Sprintf(format, args...)})
	}
}

// Unresolved reports that nothing is known of the image.
func (o Offer) Unresolved() bool { return o.Follow.Digest == "" }

// LastOffer is the last answer to a question. err says why there is no newer one; an
// answer that nobody was to renew is not a failure.
func LastOffer(r *record.Record, q release.Question, err error) Offer {
	m, ok := recall(r, q)
	switch {
	case !ok:
		if s := r.Sources[q.Repository]; errors.Is(err, release.ErrNotAsked) && s.Failures > 0 {
			err = s.Err(q.Repository) // asked, and not answered
		}
		return Offer{Question: q, Err: err}
	case m.Refused != "":
		cause := release.ErrPlatform
		if m.Gone {
			cause = release.ErrNotFound
		}
		return Offer{Question: q, Err: &release.Refusal{Text: m.Refused, Cause: cause}}
	case errors.Is(err, release.ErrNotAsked):
		err = nil
	}
	return Offer{
		Question: q, Follow: m.Follow, Newest: m.Newest, Newer: withNewest(m.Follow, m.Newest, m.Newer),
		Host: m.Host, Mirror: m.Mirror,
		Refused: m.RefusedTags, Notes: m.Notes, StageFrom: m.StageFrom, Err: err,
	}
}

// remembered is the offer as the record keeps it.
func (o Offer) remembered(now time.Time, rule policy.Rule) record.Answer {
	return record.Answer{
		At: now, Rules: rule.Asks(), Follow: o.Follow, Newest: o.Newest, Newer: o.Newer, Host: o.Host, Mirror: o.Mirror,
		RefusedTags: o.Refused, Notes: o.Notes, StageFrom: o.StageFrom,
	}
}

// recall finds the last answer to a question. Once an offer is applied, the pod
// manifest names another tag and so asks another question: what was offered is
// the answer to it, and is kept as that.
func recall(r *record.Record, q release.Question) (record.Answer, bool) {
	if m, ok := r.Offers[q.String()]; ok {
		return m, true
	}
	var best record.Answer
	for _, key := range slices.Sorted(maps.Keys(r.Offers)) {
		m := r.Offers[key]
		if q.Tag == "" || m.Follow.Repository != q.Repository || strings.HasSuffix(key, release.AsWritten) == q.Convert {
			continue
		}
		for _, f := range []release.Release{m.Follow, m.Newest} {
			if f.Tag == q.Tag && m.At.After(best.At) {
				best = m
				best.Follow, best.RefusedTags, best.Notes = f, nil, nil
			}
		}
	}
	if best.Follow.Digest == "" {
		return record.Answer{}, false
	}
	r.Offers.Set(q.String(), best)
	return best, true
}

func releasesOf(follow, newest release.Release, newer []record.Candidate) []release.Release {
	out := []release.Release{follow, newest}
	for _, c := range newer {
		if c.Digest != "" {
			out = append(out, c.Release)
		}
	}
	return out
}
