// SPDX-License-Identifier: Apache-2.0

// Package source asks a source for releases with as few requests as possible. The Asker asks the questions of one
// Round, which requests no answer twice, and returns an Offer for each. A digest that is new to the node counts only
// after a second reading.
//
// The long tag is requested with GET after the HEAD for the followed tag; if the content has the digest, description
// and pull use it. Only the list is one request more than CRI's. The long tag is not taken from the image's label,
// which an image built from another one inherits, and the followed tag is not fetched by one GET, because containerd
// takes host and media type from the answer to HEAD.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Source publishes releases: registries, or an OCI layout.
type Source interface {
	Registry
	// Tags lists the tags of a repository, unsorted, limited in number.
	Tags(ctx context.Context, repository string) ([]string, error)
}

// Registry is the part of a Source that an apply needs.
type Registry interface {
	// Resolve returns the current digest of a tag, with one HEAD request if the host supports it. A missing tag is
	// ErrNotFound.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Describe fetches the build of a digest for the node's platform: ErrPlatform if there is none, ErrNotFound if the
	// digest is gone.
	Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error)
}

// FailureMeter counts polls without an answer.
type FailureMeter interface {
	// Failed counts a repository whose source did not answer, at most once per round. host is empty if none was
	// reached.
	Failed(host string, cause release.Cause)
}

// ErrPersonFirst is the cause that cancels the context of a poll or a staging for a person's request.
var ErrPersonFirst = errors.New("interrupted by a request")

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
	for _, same := range byRepository(round.inOrder(qs)) {
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

// resolver is a Source that can read the manifest with the answer about a tag: see registry.ResolveTo.
type resolver interface {
	ResolveTo(ctx context.Context, ref release.Reference, want digest.Digest) (release.Resolved, error)
}

// askTag resolves a tag at the source. want is the digest that it probably names and that is described next, or empty.
func (r *Round) askTag(
	ctx context.Context, ref release.Reference, want digest.Digest,
) (release.Resolved, error) {
	defer r.asker.Progress.Heartbeat()()
	from := r.source(ref.Repository)
	if reads, is := from.(resolver); is && want != "" {
		return reads.ResolveTo(ctx, ref, want)
	}
	return from.Resolve(ctx, ref)
}

// source returns the source of a repository: the catalog if it lists the repository.
func (r *Round) source(repository string) Source {
	if !r.listing.IsListed(repository) {
		return r.asker.Source
	}
	scheme := r.asker.Policy.RuleFor(repository).Scheme
	return listedSource{listing: r.listing, scheme: scheme, missing: r.missing, Source: r.asker.Source}
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
		r.offer.At, r.offer.Rules = a.Now(), a.Policy.RuleFor(q.Repository).Fingerprint()
		r.offer.StageFrom = a.stageFrom(q, r.offer, round.poll)
		r.offer.keepSince(a.Record.Offers[q.String()], a.Now())
		a.Record.Offers.Set(q.String(), r.offer.Answer)
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

// inOrder sorts questions. Those whose answer was interrupted come last: a source that hangs must not delay the others
// again. The others come by the failures of their source: requests to a host that fails often may open its circuit
// breaker.
func (r *Round) inOrder(qs []release.Question) []release.Question {
	late := func(q release.Question) int {
		if r.interrupted[q.Repository] {
			return 1
		}
		return 0
	}
	failures := func(q release.Question) int { return r.asker.Record.Sources[q.Repository].Failures }
	return slices.SortedStableFunc(slices.Values(qs), func(x, y release.Question) int {
		return cmp.Or(cmp.Compare(late(x), late(y)), cmp.Compare(failures(x), failures(y)))
	})
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
