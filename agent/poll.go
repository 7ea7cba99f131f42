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
	// PollFailed asks again what was not answered, where its back-off is over, and
	// what was never asked.
	PollFailed
	// PollDue asks for the followed tags, and for tag lists where they are due.
	PollDue
	// PollAll asks for everything, also before its time: a person wants to know.
	PollAll
)

// ask asks as much as a cycle is for, and looks for signatures again. A person's request
// interrupts both; then what was answered is not asked again, and who was being asked
// comes last.
func (a *Agent) ask(ctx context.Context, inv Inventory, e errand) (map[Question]Offer, *Interruption) {
	views := survey(inv, a.record.Overrides, a.Policy)
	asked, qs := newInquiry(a, inv, views, e.poll), questions(views, a.Policy)
	if e.person {
		return a.offers(ctx, asked, qs, true), nil
	}
	ctx, end := a.people.interruptible(ctx)
	defer end()
	if e.poll != PollNone {
		asked.takeUp(a.half)
		a.half = nil
	}
	offers := a.offers(ctx, asked, qs, true)
	if cut := a.interrupted(ctx, "poll", e.poll); cut != nil {
		if e.poll != PollNone {
			a.half = asked
		}
		return nil, cut
	}
	a.verifyAgain(ctx, e.poll)
	return offers, a.interrupted(ctx, "poll", PollNone)
}

// offers asks the source about every question, as cheaply as it allows. With
// confirm, what is new to the node counts only when it was read twice.
func (a *Agent) offers(ctx context.Context, asked *inquiry, qs []Question, confirm bool) map[Question]Offer {
	asked.noteRules(qs)
	for _, same := range byRepository(asked.lateLast(a.leastFailedFirst(qs))) {
		asked.askAll(ctx, same)
	}
	if confirm {
		asked.confirm(ctx)
	}
	if errors.Is(context.Cause(ctx), errGoesFirst) {
		return nil // it goes on
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
	if asked.poll != PollNone && ctx.Err() == nil {
		a.record.LastCheck = a.Now()
	}
	deleteUnless(a.record.Offers, asks) // what nobody asks any more must not answer a later question
	return out
}

// byRepository puts questions about one repository beside one another, in the
// order of the first of them.
func byRepository(qs []Question) [][]Question {
	var out [][]Question
	at := map[string]int{}
	for _, q := range qs {
		n, ok := at[q.Repository]
		if !ok {
			n = len(out)
			at[q.Repository] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], q)
	}
	return out
}

// askAll puts the questions about one repository, and drops its tag list.
func (i *inquiry) askAll(ctx context.Context, qs []Question) {
	var early []Question // answered before the repository was listed anew
	for _, q := range qs {
		if !i.agent.due(q, i.poll) || ctx.Err() != nil {
			continue
		}
		if !i.listed[q.Repository] {
			early = append(early, q)
		}
		i.ask(ctx, q)
	}
	for _, q := range early {
		if i.full[q.Repository] != nil && ctx.Err() == nil {
			i.ask(ctx, q) // what was asked before is not asked again
		}
	}
	if ctx.Err() == nil {
		i.shorten(qs)
	}
}

// lateLast moves to the end who was being asked when the poll was interrupted: who
// does not answer keeps no others from being asked.
func (i *inquiry) lateLast(qs []Question) []Question {
	late := func(q Question) int {
		if i.late[q.Repository] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(qs, func(x, y Question) int { return cmp.Compare(late(x), late(y)) })
	return qs
}

// due tells whether a poll puts a question.
func (a *Agent) due(q Question, poll Poll) bool {
	if poll != PollFailed {
		return poll != PollNone
	}
	if at, failed := a.record.Sources[q.Repository].retry(a.Now()); failed {
		return !at.After(a.Now())
	}
	m, asked := a.record.recall(q)
	at, again := m.again(a.Now())
	return !asked || again && !at.After(a.Now())
}

// noteRules finds the questions that were answered under other rules: what is
// allowed now may not have been asked for. They are put again soon, each node at
// its own moment, for all may have got the rules at once.
func (i *inquiry) noteRules(qs []Question) {
	jitter := i.agent.jitter()
	for _, q := range qs {
		m, ok := i.agent.record.Offers[q.String()]
		if !ok || m.Rules == "" {
			continue
		}
		changed := m.Rules != i.agent.Policy.rule(q.Repository).asks()
		switch {
		case !changed:
			m.Again = time.Time{}
		case m.Again.IsZero():
			m.Again = i.agent.Now().Add(Backoff(1, jitter))
		}
		i.changed[q.Repository] = i.changed[q.Repository] || changed
		i.agent.record.remember(q, m)
	}
}

// again is when a question is put again because the rules have changed.
func (m Remembered) again(now time.Time) (time.Time, bool) {
	if m.Again.Sub(now) > backoffMost {
		return now, true // kept under a wrong clock
	}
	return m.Again, !m.Again.IsZero()
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
		r.offer.firstSeen(a.record.Offers[q.String()], a.Now())
		a.record.remember(q, r.offer.remembered(a.Now(), a.Policy.rule(q.Repository)))
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

// retries are the moments at which sources are asked again before the next poll:
// those that failed, and those that were asked under other rules.
func (a *Agent) retries() []time.Time {
	var at []time.Time
	for _, s := range a.record.Sources {
		if t, ok := s.retry(a.Now()); ok {
			at = append(at, t)
		}
	}
	for _, m := range a.record.Offers {
		if t, ok := m.again(a.Now()); ok && a.record.Sources[m.Follow.Repository].Failures == 0 {
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
