// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Round is one round of questions. It requests no answer twice.
type Round struct {
	asker        *Asker
	poll         Poll
	held         map[digest.Digest]bool               // on the node
	running      map[release.Question][]digest.Digest // if known
	rulesChanged map[string]bool                      // since the last answer, by repository
	results      map[release.Question]result
	undescribed  map[string]error // releases (repository@digest) without a build for this node

	// A later round copies the fields below from an interrupted one, see Resume.
	began    time.Time
	resolved map[release.Reference]resolution
	lists    *tagLists
	listing  catalog.Listing // of the catalog
	// catalogAsked: this round has asked for the catalog.
	catalogAsked bool
	missing      map[string]error // listed releases (repository@digest) that the registry lacks
	interrupted  map[string]bool  // repositories whose question was interrupted
	readAgainAt  time.Time        // time of the second reading; zero: the round does not wait for it
}

// resolution is the source's answer about a tag.
type resolution struct {
	release.Resolved
	err error
}

// result is the answer to a question.
type result struct {
	offer     Offer
	err       error
	by        release.Resolved // the last answer about a tag
	confirmed bool             // no digest in it waits for a second reading
}

// failed reports whether the source did not answer. ErrNotFound, ErrPlatform and ErrUnlisted
// are answers.
func (r result) failed() bool {
	return r.err != nil && !errors.Is(r.err, release.ErrNotFound) && !errors.Is(r.err, release.ErrPlatform) &&
		!errors.Is(r.err, release.ErrUnlisted)
}

// NewRound starts a round. held are the digests on the node; running are the running ones, by the question of their
// image.
func (a *Asker) NewRound(poll Poll, held map[digest.Digest]bool, running map[release.Question][]digest.Digest) *Round {
	return &Round{
		asker: a, poll: poll, held: held, running: running,
		rulesChanged: map[string]bool{}, results: map[release.Question]result{},
		undescribed: map[string]error{},
		began:       a.Now(), resolved: map[release.Reference]resolution{}, lists: newTagLists(a, poll),
		missing: map[string]error{}, interrupted: map[string]bool{},
	}
}

// maxResumeAge is how long the answers of an interrupted round are valid.
const maxResumeAge = 10 * time.Minute

// Resume copies the source's answers from an interrupted round of the same poll. Offers are computed again, because the
// person's request may have changed the rules.
func (r *Round) Resume(old *Round) {
	if old == nil || old.poll != r.poll || r.began.Sub(old.began).Abs() > maxResumeAge {
		return
	}
	r.began, r.resolved, r.interrupted, r.readAgainAt = old.began, old.resolved, old.interrupted, old.readAgainAt
	r.lists, r.lists.asker = old.lists, r.asker
	r.catalogAsked, r.missing = old.catalogAsked, old.missing
}

// askRepository asks the questions about one repository, and then trims its tag list. A
// question that was answered before the tags were listed is answered again.
func (r *Round) askRepository(ctx context.Context, qs []release.Question) {
	var beforeList []release.Question
	for _, q := range qs {
		if !r.asker.isDue(q, r.poll) || r.awaitsCatalog() || ctx.Err() != nil {
			continue
		}
		if !r.lists.asked[q.Repository] {
			beforeList = append(beforeList, q)
		}
		r.ask(ctx, q)
	}
	for _, q := range beforeList {
		if r.lists.tags[q.Repository] != nil && ctx.Err() == nil {
			r.ask(ctx, q)
		}
	}
	if ctx.Err() != nil {
		return
	}
	var follows []followed
	for _, q := range qs {
		last := r.asker.Record.Offers[q.String()] // in case this round has no answer
		follows = append(follows, r.asker.followed(q, r.results[q].offer.Follow.Tag, last.Follow.Tag)...)
	}
	r.lists.trim(qs[0].Repository, follows)
}

// ask answers a question. An interrupted answer counts neither as answer nor as failure.
func (r *Round) ask(ctx context.Context, q release.Question) {
	end := func(error) {}
	if !r.listing.IsListed(q.Repository) { // otherwise the catalog was asked
		ctx, end = r.asker.reportAsking(ctx, q.String())
	}
	l := lookup{Round: r, question: q, rule: r.asker.Policy.RuleForQuestion(q)}
	var offer Offer
	err := r.unlisted(q)
	if err == nil {
		offer, err = l.answer(ctx)
	}
	end(cmp.Or(ctx.Err(), err))
	if ctx.Err() != nil {
		r.interrupted[q.Repository] = true
		delete(r.results, q)
		return
	}
	delete(r.interrupted, q.Repository)
	r.results[q] = result{offer: offer, err: err, by: l.by, confirmed: true}
}

// reportAsking reports that a source is asked when it sends a request: it may know the answer, its host may wait, and
// the budget may be used up. The caller calls end with the result.
func (a *Asker) reportAsking(ctx context.Context, reference string) (asking context.Context, end func(error)) {
	p := status.Progress{Reference: reference, Phase: status.PhaseAsking}
	var asked atomic.Bool
	report := sync.OnceFunc(func() { asked.Store(true); a.Progress.Report(p) })
	return release.WithAsking(ctx, report), func(err error) {
		if asked.Load() {
			a.Progress.End(p, err)
		}
	}
}

// interruptedLast moves questions whose answer was interrupted to the end: a source that hangs must not delay the
// others again.
func (r *Round) interruptedLast(qs []release.Question) []release.Question {
	var first, last []release.Question
	for _, q := range qs {
		if r.interrupted[q.Repository] {
			last = append(last, q)
		} else {
			first = append(first, q)
		}
	}
	return append(first, last...)
}

// noteRules schedules a new request if the rules have changed since the last answer, because the answer may lack tags
// that they now allow. All nodes may get new rules at once, so each waits for a random time.
func (r *Round) noteRules(qs []release.Question) {
	jitter := r.asker.Jitter()
	for _, q := range qs {
		last, ok := r.asker.Record.Offers[q.String()]
		if !ok || last.Rules == "" {
			continue
		}
		changed := last.Rules != r.asker.Policy.RuleFor(q.Repository).Fingerprint()
		switch {
		case !changed:
			last.RetryAt = time.Time{}
		case last.RetryAt.IsZero():
			last.RetryAt = r.asker.Now().Add(policy.Backoff(1, jitter))
		}
		r.rulesChanged[q.Repository] = r.rulesChanged[q.Repository] || changed
		r.asker.Record.Offers.Set(q.String(), last)
	}
}

// sortedKeys returns the keys of a map, sorted by their texts.
func sortedKeys[K interface {
	comparable
	fmt.Stringer
}, V any](m map[K]V) []K {
	return slices.SortedFunc(maps.Keys(m), func(x, y K) int { return cmp.Compare(x.String(), y.String()) })
}
