// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
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

// Asker asks the source. What it learns it keeps in the record.
type Asker struct {
	Source   Source
	Policy   policy.Policy
	Record   *record.Record
	Meter    FailureMeter // nil: nobody counts
	Log      *slog.Logger
	Now      func() time.Time
	Jitter   func() float64 // from [0,1), another one each time
	Progress *status.Reporter
}

// Ask asks the source about every question of a round, as cheaply as it allows. With
// confirm, what is new to the node counts only when it was read twice. nil: a person's
// request has interrupted it.
func (a *Asker) Ask(ctx context.Context, round *Round, qs []release.Question, confirm bool) map[release.Question]Offer {
	round.noteRules(qs)
	for _, same := range byRepository(round.lateLast(a.leastFailedFirst(qs))) {
		round.askAll(ctx, same)
	}
	if confirm {
		round.confirm(ctx)
	}
	if errors.Is(context.Cause(ctx), ErrPersonFirst) {
		return nil // it goes on
	}
	a.noteSources(ctx, round)
	if confirm { // a plan is only looked at
		a.countFailures(ctx, round)
	}
	out := make(map[release.Question]Offer, len(qs))
	keys := map[string]bool{}
	for _, q := range qs {
		out[q] = a.resolveOffer(ctx, round, q)
		keys[q.String()] = true
	}
	round.keepTags(out)
	if round.poll != PollNone && ctx.Err() == nil {
		a.Record.LastCheck = a.Now()
	}
	a.Record.Offers.Retain(keys) // what nobody asks any more must not answer a later question
	return out
}

// resolve asks what a tag names now.
func (a *Asker) resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer a.Progress.Heartbeat()()
	return a.Source.Resolve(ctx, ref)
}

// describe fetches what a digest is.
func (a *Asker) describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	defer a.Progress.Heartbeat()()
	return a.Source.Describe(ctx, repository, d)
}

// byRepository puts questions about one repository beside one another, in the
// order of the first of them.
func byRepository(qs []release.Question) [][]release.Question {
	var out [][]release.Question
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
func (i *Round) askAll(ctx context.Context, qs []release.Question) {
	var early []release.Question // answered before the repository was listed anew
	for _, q := range qs {
		if !i.asker.isDue(q, i.poll) || ctx.Err() != nil {
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
func (i *Round) lateLast(qs []release.Question) []release.Question {
	late := func(q release.Question) int {
		if i.late[q.Repository] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(qs, func(x, y release.Question) int { return cmp.Compare(late(x), late(y)) })
	return qs
}

// due tells whether a poll puts a question.
func (a *Asker) isDue(q release.Question, poll Poll) bool {
	if poll != PollFailed {
		return poll != PollNone
	}
	if at, failed := a.Record.Sources[q.Repository].AskAgainAt(a.Now()); failed {
		return !at.After(a.Now())
	}
	m, asked := recall(a.Record, q)
	at, again := m.AskAgainAt(a.Now())
	return !asked || again && !at.After(a.Now())
}

// noteRules finds the questions that were answered under other rules: what is
// allowed now may not have been asked for. They are put again soon, each node at
// its own moment, for all may have got the rules at once.
func (i *Round) noteRules(qs []release.Question) {
	jitter := i.asker.Jitter()
	for _, q := range qs {
		m, ok := i.asker.Record.Offers[q.String()]
		if !ok || m.Rules == "" {
			continue
		}
		changed := m.Rules != i.asker.Policy.RuleFor(q.Repository).Asks()
		switch {
		case !changed:
			m.Again = time.Time{}
		case m.Again.IsZero():
			m.Again = i.asker.Now().Add(policy.Backoff(1, jitter))
		}
		i.changed[q.Repository] = i.changed[q.Repository] || changed
		i.asker.Record.Offers.Set(q.String(), m)
	}
}

// resolveOffer returns the offer for a question, and stores it in the record. Where there is no answer it
// is the last one.
func (a *Asker) resolveOffer(ctx context.Context, asked *Round, q release.Question) Offer {
	r, ok := asked.results[q]
	switch {
	case !ok, ctx.Err() != nil && (r.err != nil || !r.confirmed):
		return LastOffer(a.Record, q, release.ErrNotAsked) // not asked, or asked to stop: nobody's failure
	case r.err == nil:
		r.offer.StageFrom = a.stageFrom(q, r.offer, asked.poll)
		r.offer.firstSeen(a.Record.Offers[q.String()], a.Now())
		a.Record.Offers.Set(q.String(), r.offer.remembered(a.Now(), a.Policy.RuleFor(q.Repository)))
		return r.offer
	case r.failed():
		return LastOffer(a.Record, q, r.err)
	default: // the source did answer, and what it says leaves nothing to offer
		a.Record.Offers.Set(
			q.String(), record.Answer{At: a.Now(), Refused: r.err.Error(), Gone: errors.Is(r.err, release.ErrNotFound)},
		)
		return Offer{Question: q, Err: r.err}
	}
}

// stageFrom is when the pull of an offer may begin: at once where a person asked
// or it was offered before, else after this node's part of the spread.
func (a *Asker) stageFrom(q release.Question, o Offer, poll Poll) time.Time {
	last, ok := a.Record.Offers[q.String()]
	switch {
	case poll == PollAll || a.Policy.StageDelay <= 0:
		return time.Time{}
	case ok && last.Newest.Digest == o.Newest.Digest:
		return last.StageFrom
	default:
		return a.Now().Add(a.Policy.StageDelay)
	}
}

// Retries are the moments at which sources are asked again before the next poll: those
// that failed, and those that were asked under other rules.
func Retries(r *record.Record, now time.Time) []time.Time {
	var at []time.Time
	for _, s := range r.Sources {
		if t, ok := s.AskAgainAt(now); ok {
			at = append(at, t)
		}
	}
	for _, m := range r.Offers {
		if t, ok := m.AskAgainAt(now); ok && r.Sources[m.Follow.Repository].Failures == 0 {
			at = append(at, t)
		}
	}
	return at
}

// questions gives what was asked, sorted.
func (i *Round) questions() []release.Question {
	return slices.SortedFunc(
		maps.Keys(i.results), func(x, y release.Question) int { return cmp.Compare(x.String(), y.String()) },
	)
}
