// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
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
	asked := &inquiry{agent: a, poll: poll, heads: map[Reference]head{}, listed: map[string]bool{}}
	out := make(map[Question]Offer, len(qs))
	for _, q := range qs {
		if poll == PollNone || ctx.Err() != nil {
			out[q] = a.remembered(q, errNotAsked)
			continue
		}
		out[q] = a.ask(ctx, asked, q)
	}
	if poll != PollNone {
		a.record.LastCheck = a.Now()
	}
	return out
}

// ask puts one question, and falls back on the last answer where there is none.
func (a *Agent) ask(ctx context.Context, asked *inquiry, q Question) Offer {
	if at := a.record.Sources[q.Repository].RetryAt; asked.poll != PollAll && a.Now().Before(at) {
		return a.remembered(q, fmt.Errorf("%s: asked to wait until %s", q.Repository, at.Format(time.RFC3339)))
	}
	a.tell(Progress{Reference: q.String(), Phase: "asking"})
	offer, err := asked.answer(ctx, q)
	a.record.noteSource(q.Repository, asked.last, err, a.Now())
	switch {
	case err == nil:
		a.record.remember(q, offer, a.Now())
		return offer
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrPlatform):
		// The source did answer, and what it says leaves nothing to offer.
		return Offer{Question: q, Err: err}
	default:
		a.Log.Warn("source does not answer", "cycle", a.cycle, "image", q.String(), "err", err)
		return a.remembered(q, err)
	}
}

// remembered is the last answer. err says why there is no newer one; an answer
// that nobody was to renew is not a failure.
func (a *Agent) remembered(q Question, err error) Offer {
	m, ok := a.record.recall(q)
	if !ok {
		return Offer{Question: q, Err: err}
	}
	if errors.Is(err, errNotAsked) {
		err = nil
	}
	return Offer{Question: q, Follow: m.Follow, Newest: m.Newest, Notes: m.Notes, Err: err}
}

// recall finds the last answer to a question. What a pod follows after an apply
// was never asked for by that tag: it is the newest release of another answer.
func (r *Record) recall(q Question) (Remembered, bool) {
	if m, ok := r.Offers[q.String()]; ok {
		return m, true
	}
	var last Remembered
	for _, m := range r.Offers {
		if m.Newest.Repository == q.Repository && m.Newest.Tag == q.Tag && q.Tag != "" && !m.At.Before(last.At) {
			last = Remembered{At: m.At, Follow: m.Newest, Newest: m.Newest}
		}
	}
	return last, last.Follow.Digest != ""
}

// remember keeps an answer.
func (r *Record) remember(q Question, o Offer, now time.Time) {
	if r.Offers == nil {
		r.Offers = map[string]Remembered{}
	}
	r.Offers[q.String()] = Remembered{At: now, Follow: o.Follow, Newest: o.Newest, Notes: o.Notes}
}

// noteSource keeps how a repository's source answered.
func (r *Record) noteSource(repository string, last Resolved, err error, now time.Time) {
	if r.Sources == nil {
		r.Sources = map[string]SourceRecord{}
	}
	s := r.Sources[repository]
	s.RetryAt = time.Time{}
	if err == nil {
		r.Sources[repository] = SourceRecord{
			Host: last.Host, Mirror: last.Mirror, Insecure: last.Insecure, LastSuccess: now,
		}
		return
	}
	s.Failures++
	s.Error = err.Error()
	if se, ok := errors.AsType[*SourceError](err); ok {
		s.Host, s.Mirror, s.RetryAt = se.Host, se.Mirror, se.RetryAt
	}
	r.Sources[repository] = s
}
