// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// refreshCatalog reads the catalog at most once per round.
func (r *Round) refreshCatalog(ctx context.Context, qs []release.Question) {
	a := r.asker
	if a.Catalog == nil {
		return
	}
	r.listing = a.Catalog.Last(ctx).WithWithdrawnSets()
	if r.catalogAsked || !a.isCatalogDue(r.listing, r.poll) {
		return
	}
	asking, end := a.reportAsking(ctx, r.listing.Catalog)
	stop := a.Progress.Heartbeat()
	listing, err := a.Catalog.Refresh(asking, repositoriesOf(qs))
	stop()
	end(err)
	if err != nil && ctx.Err() != nil {
		return
	}
	r.catalogAsked, r.listing = true, listing.WithWithdrawnSets()
	a.recordCatalog(listing, err)
}

// repositoriesOf returns the repositories of questions, sorted.
func repositoriesOf(qs []release.Question) []string {
	var out []string
	for _, q := range qs {
		out = append(out, q.Repository)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isCatalogDue reports whether a poll asks for the catalog.
func (a *Asker) isCatalogDue(last catalog.Listing, poll Poll) bool {
	if poll != PollFailed {
		return poll != PollNone
	}
	at, failed := a.Record.Sources[last.Catalog].NextRetry(a.Now())
	return failed && !at.After(a.Now()) || !failed && last.Version == 0
}

// recordCatalog records the result of the catalog's source.
func (a *Asker) recordCatalog(l catalog.Listing, err error) {
	if err == nil {
		a.Record.Sources.Set(l.Catalog, a.answeredBy(record.SourceCatalog, l.By))
		return
	}
	a.Log.Warn("cannot refresh the catalog", "catalog", l.Catalog, "err", err)
	a.count(err)
	recordFailure(a.Record, l.Catalog, err, a.Now(), a.Jitter())
	s := a.Record.Sources[l.Catalog]
	s.Kind = record.SourceCatalog
	s.Refused = errors.Is(err, release.ErrNotFound) || errors.Is(err, release.ErrForged) ||
		errors.Is(err, release.ErrCatalog)
	a.Record.Sources.Set(l.Catalog, s)
}

// awaitsCatalog reports whether the round must ask nothing: the catalog was never read, and a tag may name a release
// that the publisher has not promoted.
func (r *Round) awaitsCatalog() bool { return r.asker.Catalog != nil && r.listing.Version == 0 }

// unlisted returns the answer to a question about a repository that the catalog must list.
func (r *Round) unlisted(q release.Question) error {
	if !r.asker.Policy.Catalog.OnlyListed || r.listing.Version == 0 || r.listing.IsListed(q.Repository) {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", r.listing.Catalog, q.Repository, release.ErrUnlisted)
}

// unlistedTag returns the tag to follow if the catalog lists no release of the followed tag: of the running release, or
// for a new pod of the newest listed release that the rules allow.
func (l *lookup) unlistedTag(ctx context.Context, cause error) (string, digest.Digest, error) {
	q := l.question
	for _, running := range l.running[q] {
		if running != "" {
			return release.Floating(q.Tag, l.rule.Scheme), running, nil
		}
	}
	from, err := l.rule.Scheme.Parse(q.Tag)
	if err != nil || !q.Convert {
		return "", "", cause
	}
	list, err := l.list(ctx, false)
	if err != nil {
		return "", "", err
	}
	for _, t := range ofForm(list, tags.Intermediate) {
		if _, refused := l.rule.RefusesTag(t, tags.ChangeBetween(from, t)); refused || tags.Compare(t, from) <= 0 {
			continue
		}
		d, err := l.resolve(ctx, t.String(), "")
		if err != nil {
			return "", "", err
		}
		if is, _ := l.listing.Find(q.Repository, d); is.IsOffered() {
			return t.String(), d, nil
		}
	}
	return "", "", cause
}

// nextListed returns the release instead of a digest that the registry lacks, as a mirror may: the next lower one that
// the catalog lists under the tag.
func (l *lookup) nextListed(
	ctx context.Context, tag string, d digest.Digest, lacks error,
) (release.Release, error) {
	repository := l.question.Repository
	_, listed := l.listing.Find(repository, d)
	if !listed && slices.Contains(l.running[l.question], d) { // it need not be in the registry any more
		return release.Release{Repository: repository, Tag: tag, Digest: d}, nil
	}
	l.missing[release.Key(repository, d)] = lacks
	delete(l.resolved, release.Reference{Repository: repository, Tag: tag})
	next, err := l.resolve(ctx, tag, "")
	if err != nil || next == d || l.missing[release.Key(repository, next)] != nil {
		return release.Release{}, lacks
	}
	return l.release(ctx, tag, next)
}

// refuseMissing adds a refusal for each listed release that the registry lacks.
func (l *lookup) refuseMissing(o *Offer) {
	for _, is := range l.listing.Images[o.Repository] {
		if err := l.missing[release.Key(o.Repository, is.Digest)]; err != nil {
			o.refuse(is.Tag, policy.RuleMissing, "in the catalog, but not usable: %v", err)
		}
	}
}

// listedSource answers questions about tags of a repository from a catalog. The registry describes the builds.
type listedSource struct {
	listing catalog.Listing
	scheme  tags.Scheme
	missing map[string]error // releases (repository@digest) that the registry lacks
	Source
}

// Resolve returns the newest release under a tag that may be offered; if there is none, the newest one, so that the
// status shows why it is refused.
func (s listedSource) Resolve(_ context.Context, ref release.Reference) (release.Resolved, error) {
	is, ok := s.listing.Newest(ref, s.scheme, func(r format.Release) bool {
		return r.IsOffered() && s.missing[release.Key(ref.Repository, r.Digest)] == nil
	})
	if !ok {
		is, ok = s.listing.Newest(ref, s.scheme, func(format.Release) bool { return true })
	}
	by := s.listing.By
	if !ok {
		return by, fmt.Errorf("%s: %s: %w", s.listing.Catalog, ref, release.ErrUnlisted)
	}
	by.Digest = is.Digest
	return by, nil
}

// Tags returns the tags of the listed releases, and the floating tags above them.
func (s listedSource) Tags(_ context.Context, repository string) ([]string, error) {
	return s.listing.Tags(repository, s.scheme), nil
}
