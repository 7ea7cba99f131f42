// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
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
	Newest Release // the newest release that policy allows; Follow where none is newer
	Notes  []string
	// Err with a zero Follow: unresolved, the pod is withheld. Err with a
	// Follow: remembered.
	Err error
}

// Unresolved reports that nothing is known of the image.
func (o Offer) Unresolved() bool { return o.Follow.Digest == "" }

// errNotAsked stands in an offer that no poll has answered yet.
var errNotAsked = errors.New("not asked yet")

// maxRetryWait bounds how long a source may ask us to wait. A later time was
// heard when the clock was wrong, or from a host that is.
const maxRetryWait = 24 * time.Hour

// Poll says how much a cycle asks.
type Poll int

const (
	// PollNone asks nothing: the cycle works with the last answers.
	PollNone Poll = iota
	// PollDue asks for the followed tags, and for tag lists where they are due.
	PollDue
	// PollAll asks for everything, also before its time: a person wants to know.
	PollAll
)

// offers asks the source about every question, as cheaply as it allows.
func (a *Agent) offers(ctx context.Context, qs []Question, poll Poll) map[Question]Offer {
	asked := newInquiry(a, poll)
	out := make(map[Question]Offer, len(qs))
	var early []Question // answered before their repository was listed anew
	for _, q := range qs {
		if poll == PollNone || ctx.Err() != nil {
			out[q] = a.remembered(q, errNotAsked)
			continue
		}
		if !asked.listed[q.Repository] {
			early = append(early, q)
		}
		out[q] = a.ask(ctx, asked, q)
	}
	for _, q := range early {
		if asked.full[q.Repository] != nil && ctx.Err() == nil {
			out[q] = a.ask(ctx, asked, q) // what was asked before is not asked again
		}
	}
	if poll != PollNone {
		a.record.LastCheck = a.Now()
	}
	// What nobody asks any more must not answer a later question.
	asks := map[string]bool{}
	for _, q := range qs {
		asks[q.String()] = true
	}
	deleteUnless(a.record.Offers, asks)
	return out
}

// ask puts one question, and falls back on the last answer where there is none.
func (a *Agent) ask(ctx context.Context, asked *inquiry, q Question) Offer {
	wait := a.record.Sources[q.Repository].RetryAt.Sub(a.Now())
	if asked.poll != PollAll && wait > 0 && wait <= maxRetryWait {
		until := a.Now().Add(wait).UTC().Format(time.RFC3339)
		return a.remembered(q, fmt.Errorf("%s: asked to wait until %s", q.Repository, until))
	}
	a.tell(Progress{Reference: q.String(), Phase: "asking"})
	offer, err := asked.answer(ctx, q)
	switch {
	case err == nil:
		a.record.noteAnswer(q.Repository, asked.last, a.Now())
		a.record.remember(q, Remembered{At: a.Now(), Follow: offer.Follow, Newest: offer.Newest, Notes: offer.Notes})
		return offer
	case ctx.Err() != nil:
		return a.remembered(q, errNotAsked) // asked to stop: nobody's failure
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrPlatform):
		// The source did answer, and what it says leaves nothing to offer.
		a.record.noteAnswer(q.Repository, answerer(err, asked.last), a.Now())
		a.record.remember(q, Remembered{At: a.Now(), Refused: err.Error(), Gone: errors.Is(err, ErrNotFound)})
		return Offer{Question: q, Err: err}
	default:
		a.Log.Warn("source does not answer", "cycle", a.cycle, "image", q.String(), "err", err)
		a.record.noteFailure(q.Repository, err)
		return a.remembered(q, err)
	}
}

// remembered is the last answer. err says why there is no newer one; an answer
// that nobody was to renew is not a failure.
func (a *Agent) remembered(q Question, err error) Offer {
	m, ok := a.record.recall(q)
	switch {
	case !ok:
		if s := a.record.Sources[q.Repository]; errors.Is(err, errNotAsked) && s.Failures > 0 {
			err = errors.New(s.Error) // asked, and not answered
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
	return Offer{Question: q, Follow: m.Follow, Newest: m.Newest, Notes: m.Notes, Err: err}
}

// refusal is a source's answer as the record keeps it.
type refusal struct {
	text  string
	cause error // ErrNotFound or ErrPlatform
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.cause }

// remember keeps an answer.
func (r *Record) remember(q Question, m Remembered) {
	if r.Offers == nil {
		r.Offers = map[string]Remembered{}
	}
	r.Offers[q.String()] = m
}

// recall finds the last answer to a question. Once an offer is applied, the pod
// manifest names another tag and so asks another question: what was offered is
// the answer to it, and is kept as that.
func (r *Record) recall(q Question) (Remembered, bool) {
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
				best = Remembered{At: m.At, Follow: f, Newest: m.Newest}
			}
		}
	}
	if best.Follow.Digest == "" {
		return Remembered{}, false
	}
	r.remember(q, best)
	return best, true
}
