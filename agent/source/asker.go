// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Poll says which questions a cycle asks.
type Poll int

const (
	// PollNone sends no request: the cycle uses the last answers.
	PollNone Poll = iota
	// PollFailed asks failed sources whose back-off is over, and new questions.
	PollFailed
	// PollDue resolves the followed tags, and lists tags where the last list is too old.
	PollDue
	// PollAll asks all questions now, for a person.
	PollAll
)

// Asker asks the source and stores the answers in the record.
type Asker struct {
	Source   Source
	Catalog  catalog.Channel // nil: there is none
	Policy   policy.Policy
	Record   *record.Record
	Memory   *Memory      // of earlier rounds; nil: none
	Meter    FailureMeter // nil: failures are not counted
	Log      *slog.Logger
	Now      func() time.Time
	Jitter   func() float64 // random numbers from [0,1)
	Progress *status.Reporter
}

// Ask answers every question of a round. With confirm, a digest that is new to the node counts only after a second
// reading; without it, failures are not counted either. It returns nil if a person's request interrupted it.
func (a *Asker) Ask(ctx context.Context, round *Round, qs []release.Question, confirm bool) map[release.Question]Offer {
	a.Memory.begin()
	round.refreshCatalog(ctx, qs)
	round.noteRules(qs)
	for _, same := range byRepository(round.interruptedLast(a.leastFailedFirst(qs))) {
		round.askRepository(ctx, same)
	}
	if confirm {
		confirmNew(ctx, round)
	}
	if errors.Is(context.Cause(ctx), ErrPersonFirst) {
		return nil
	}
	a.recordSources(ctx, round, confirm)
	out := make(map[release.Question]Offer, len(qs))
	keys := map[string]bool{}
	follows := map[string][]followed{}
	for _, q := range qs {
		out[q] = a.resolveOffer(ctx, round, q)
		keys[q.String()] = true
		follows[q.Repository] = append(follows[q.Repository], a.followed(q, out[q].Follow.Tag)...)
	}
	round.lists.save(follows)
	if round.poll != PollNone && ctx.Err() == nil {
		a.Record.LastCheck = a.Now()
	}
	a.Record.Offers.Retain(keys) // an outdated answer must not answer a later question
	return out
}

// askTag resolves a tag at the source.
func (r *Round) askTag(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer r.asker.Progress.Heartbeat()()
	return r.source(ref.Repository).Resolve(ctx, ref)
}

// describe fetches the build of a digest.
func (r *Round) describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	key := release.Key(repository, d)
	if err := r.undescribed[key]; err != nil {
		return release.Build{}, err
	}
	defer r.asker.Progress.Heartbeat()()
	build, err := r.asker.Source.Describe(ctx, repository, d)
	if errors.Is(err, release.ErrPlatform) || isUnusable(err) {
		r.undescribed[key] = err
	}
	return build, err
}

// isDue reports whether a poll asks a question.
func (a *Asker) isDue(q release.Question, poll Poll) bool {
	if poll != PollFailed {
		return poll != PollNone
	}
	now := a.Now()
	if at, failed := a.Record.Sources[q.Repository].NextRetry(now); failed {
		return !at.After(now)
	}
	last, asked := lastAnswer(a.Record, q)
	at, again := last.NextRetry(now)
	return !asked || again && !at.After(now)
}

// resolveOffer returns the offer for q and stores it in the record. Without an answer it returns the last offer.
func (a *Asker) resolveOffer(ctx context.Context, round *Round, q release.Question) Offer {
	r, asked := round.results[q]
	switch {
	case !asked, ctx.Err() != nil && (r.err != nil || !r.confirmed):
		return LastOffer(a.Record, q, release.ErrNotAsked)
	case r.err == nil:
		r.offer.StageFrom = a.stageFrom(q, r.offer, round.poll)
		r.offer.keepSince(a.Record.Offers[q.String()], a.Now())
		a.Record.Offers.Set(q.String(), r.offer.answer(a.Now(), a.Policy.RuleFor(q.Repository)))
		return r.offer
	case r.failed():
		return LastOffer(a.Record, q, r.err)
	default: // the source has nothing to offer
		a.Record.Offers.Set(
			q.String(), record.Answer{
				At: a.Now(), Error: r.err.Error(), Gone: errors.Is(r.err, release.ErrNotFound),
				Unlisted: errors.Is(r.err, release.ErrUnlisted),
			},
		)
		return Offer{Question: q, Err: r.err}
	}
}

// stageFrom returns when the pull of an offer may begin. A new offer waits for the node's
// StageDelay, unless a person asked.
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

// followed parses the followed tags of a question; tags that cannot be parsed are left out.
func (a *Asker) followed(q release.Question, names ...string) []followed {
	var out []followed
	rule := a.Policy.RuleForQuestion(q)
	for _, name := range names {
		if t, err := rule.Scheme.Parse(name); err == nil {
			out = append(out, followed{t, rule})
		}
	}
	return out
}

// byRepository groups questions by repository, in the order of the first of each.
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
