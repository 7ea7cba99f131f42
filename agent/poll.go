// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Poll says how much a cycle asks.
type Poll int

const (
	// PollNone asks nothing: the cycle works with the last answers.
	PollNone Poll = iota
	// PollFailed asks again what was not answered, where its back-off is over.
	PollFailed
	// PollDue asks for the followed tags, and for tag lists where they are due.
	PollDue
	// PollAll asks for everything, also before its time: a person wants to know.
	PollAll
)

// offers asks the source about every question, as cheaply as it allows. With
// confirm, what is new to the node counts only when it was read twice.
func (a *Agent) offers(ctx context.Context, inv Inventory, qs []Question, poll Poll, confirm bool) map[Question]Offer {
	asked := newInquiry(a, inv, poll)
	var early []Question // answered before their repository was listed anew
	for _, q := range a.leastFailedFirst(qs) {
		if !a.due(q, poll) || ctx.Err() != nil {
			continue
		}
		if !asked.listed[q.Repository] {
			early = append(early, q)
		}
		asked.ask(ctx, q)
	}
	for _, q := range early {
		if asked.full[q.Repository] != nil && ctx.Err() == nil {
			asked.ask(ctx, q) // what was asked before is not asked again
		}
	}
	if confirm {
		asked.confirm(ctx)
	}
	a.noteSources(ctx, asked)
	if confirm { // a plan is only looked at
		a.countFailures(ctx, asked)
	}
	out := make(map[Question]Offer, len(qs))
	asks := map[string]bool{}
	for _, q := range qs {
		out[q] = a.settle(ctx, asked, q)
		asks[q.String()] = true
	}
	asked.keepTags(out)
	if poll != PollNone {
		a.record.LastCheck = a.Now()
	}
	deleteUnless(a.record.Offers, asks) // what nobody asks any more must not answer a later question
	return out
}

// due tells whether a poll puts a question.
func (a *Agent) due(q Question, poll Poll) bool {
	if poll != PollFailed {
		return poll != PollNone
	}
	at, ok := a.record.Sources[q.Repository].retry(a.Now())
	return ok && !at.After(a.Now())
}

// leastFailedFirst is the order of asking. Who has failed often may make its
// host be left alone for a while; the others must have had their turn by then.
func (a *Agent) leastFailedFirst(qs []Question) []Question {
	out := slices.Clone(qs)
	slices.SortStableFunc(out, func(x, y Question) int {
		return cmp.Compare(a.record.Sources[x.Repository].Failures, a.record.Sources[y.Repository].Failures)
	})
	return out
}

// noteSources keeps how each repository's source answered: one failure of any
// of its tags is a failure of the repository, counted once a round.
func (a *Agent) noteSources(ctx context.Context, asked *inquiry) {
	failed := map[string]bool{}
	jitter := a.jitter() // one a round: what failed together is retried together, in one cycle
	for _, q := range asked.questions() {
		r := asked.results[q]
		if r.failed() && ctx.Err() == nil && !failed[q.Repository] {
			failed[q.Repository] = true
			a.Log.Warn("source does not answer", "cycle", a.cycle, "image", q.String(), "err", r.err)
			a.record.noteFailure(q.Repository, r.err, a.Now(), jitter)
		}
	}
	for q, r := range asked.results {
		if !r.failed() && !failed[q.Repository] {
			a.record.noteAnswer(q.Repository, answerer(r.err, r.by), a.Now())
		}
	}
}

// settle is the offer for a question, and keeps it. Where there is no answer it
// is the last one.
func (a *Agent) settle(ctx context.Context, asked *inquiry, q Question) Offer {
	r, ok := asked.results[q]
	switch {
	case !ok, ctx.Err() != nil && (r.err != nil || !r.confirmed):
		return a.remembered(q, errNotAsked) // not asked, or asked to stop: nobody's failure
	case r.err == nil:
		r.offer.StageFrom = a.stageFrom(q, r.offer, asked.poll)
		a.record.remember(q, r.offer.remembered(a.Now()))
		return r.offer
	case r.failed():
		return a.remembered(q, r.err)
	default: // the source did answer, and what it says leaves nothing to offer
		a.record.remember(q, Remembered{At: a.Now(), Refused: r.err.Error(), Gone: errors.Is(r.err, ErrNotFound)})
		return Offer{Question: q, Err: r.err}
	}
}

// stageFrom is when the pull of an offer may begin: at once where a person asked
// or it was offered before, else after this node's part of the spread.
func (a *Agent) stageFrom(q Question, o Offer, poll Poll) time.Time {
	last, ok := a.record.Offers[q.String()]
	switch {
	case poll == PollAll || a.Policy.StageDelay <= 0:
		return time.Time{}
	case ok && last.Newest.Digest == o.Newest.Digest:
		return last.StageFrom
	default:
		return a.Now().Add(a.Policy.StageDelay)
	}
}

// retries are the moments at which failed sources want to be asked again.
func (a *Agent) retries() []time.Time {
	var at []time.Time
	for _, s := range a.record.Sources {
		if t, ok := s.retry(a.Now()); ok {
			at = append(at, t)
		}
	}
	return at
}

// maxRetryWait bounds how long a source is left alone: a host may ask for a day,
// and the spread behind that is one and a half more. A later time was heard when
// the clock was wrong.
const maxRetryWait = 3 * backoffMost

// retry is when a failed source is asked again.
func (s SourceRecord) retry(now time.Time) (time.Time, bool) {
	if s.Failures == 0 {
		return time.Time{}, false
	}
	if s.RetryAt.Sub(now) > maxRetryWait {
		return now, true
	}
	return s.RetryAt, true
}

// questions gives what was asked, sorted.
func (i *inquiry) questions() []Question {
	return slices.SortedFunc(maps.Keys(i.results), func(x, y Question) int { return cmp.Compare(x.String(), y.String()) })
}
