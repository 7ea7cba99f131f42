// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// failures returns the reasons of the state failed.
func (r *Report) failures(pl plan.Plan) []status.Reason {
	var all []status.Reason
	for key, err := range r.Errs {
		if !release.IsWaiting(err) {
			all = append(all, r.stepReason(key, err))
		}
	}
	for _, p := range pl.Pods {
		if p.Err != nil && r.Errs[p.File] == nil {
			all = append(all, status.Reason{
				Kind: status.KindManifest, PodManifest: p.File, ErrorKind: status.ErrorKindOf(p.Err),
				Text: fmt.Sprintf("%s: %v", p.File, p.Err),
			})
		}
		for _, i := range p.Images {
			// Without its followed tag the pod could not start again.
			if ask := i.Want.Ask; i.Offer.IsUnresolved() && ask.Tag != "" && errors.Is(i.Offer.Err, release.ErrNotFound) {
				kind, text := r.missingTag(ask, i.WasThere)
				all = append(all, status.Reason{
					Kind: kind, PodManifest: p.File, Image: ask.Repository, Tag: ask.Tag, ErrorKind: status.ErrorNotFound,
					Text: fmt.Sprintf("%s: %s: %v", p.File, text, i.Offer.Err),
				})
			}
		}
	}
	all = append(all, r.refusedCatalog()...)
	all = append(all, r.lockFailures()...)
	all = append(all, localRegistryLost(r.LocalRegistry)...)
	return status.Sorted(append(all, r.notUp(pl, r.Errs)...))
}

// failuresOf returns the reasons of the state failed with data from the history of the failed pod.
func (r *Report) failuresOf(state status.State, reasons []status.Reason) []status.Failure {
	out := []status.Failure{}
	if state != status.StateFailed {
		return out
	}
	for _, reason := range reasons {
		if reason.Kind == status.KindApproval || reason.Kind == status.KindLost {
			continue
		}
		f := reason.AsFailure()
		switch reason.Kind {
		case status.KindRolledBack, status.KindNotUp, status.KindStep:
			if last, ok := r.Record.History.LastFailure(f.PodManifest); ok {
				f.Container, f.Image, f.From, f.To = last.Container, last.Image, last.From, last.To
				f.Cause, f.At = cmp.Or(f.Cause, last.Cause), cmp.Or(f.At, &last.At)
			}
		}
		if back := r.Record.RolledBack(f.PodManifest); back != nil && reason.Kind == status.KindRolledBack {
			f.RolledBackTo = strings.Join(back.Runs, ", ")
		}
		out = append(out, f)
	}
	return out
}

// denied returns the running releases that this node has denied and could not replace.
func (r *Report) denied(pl plan.Plan) []status.Reason {
	var out []status.Reason
	for _, p := range pl.Pods {
		for _, i := range p.Images {
			d, is := r.Record.Denied[release.Key(i.Want.Ask.Repository, i.Running.Digest)]
			if !is || i.Running.Digest == "" || i.Down != nil {
				continue
			}
			out = append(out, status.Reason{
				Kind: status.KindDenied, PodManifest: p.File, Container: i.Want.Image.Container, Image: i.Want.Ask.Repository,
				Tag: d.Name, Digest: i.Running.Digest, Since: d.At,
				Text: fmt.Sprintf("%s: %s is running but denied on this node: %s", p.File, d.Name, d.Reason),
			})
		}
	}
	return status.Sorted(out)
}

// stepReason returns the reason for a failed or waiting step. key is its pod manifest or release.
func (r *Report) stepReason(key string, err error) status.Reason {
	out := status.Reason{Kind: status.KindStep, Text: fmt.Sprintf("%s: %v", key, err), ErrorKind: status.ErrorKindOf(err)}
	repository, d, _ := strings.Cut(key, "@")
	switch {
	case digest.Digest(d).Validate() == nil:
		out.Image, out.Digest = repository, digest.Digest(d)
	case key != GrainKey:
		out.PodManifest = key
	}
	if h, is := errors.AsType[*release.HoldError](err); is {
		out.Kind, out.Hold = status.KindHold, h.Hold
	}
	if out.ErrorKind == status.ErrorNotUp {
		out.Kind = r.Record.FailureKind(key)
	}
	return out
}

// notUp returns the pods that did not come up or no longer run, and the rolled back releases. It skips the pod
// manifests in reported, which have a reason already.
func (r *Report) notUp(pl plan.Plan, reported map[string]error) []status.Reason {
	var all []status.Reason
	skip := map[string]bool{}
	for _, p := range pl.Pods {
		skip[p.File] = reported[p.File] != nil
		if f, ok := r.Record.Failed[p.File]; ok && !f.Past && (f.Offer == p.ID || f.Running != "") && !skip[p.File] {
			skip[p.File] = true
			kind := status.KindStep
			if f.Running != "" {
				kind = r.Record.FailureKind(p.File)
			}
			all = append(all, status.Reason{Kind: kind, PodManifest: p.File, Since: f.At, Text: p.File + ": " + f.Reason})
		}
		if !skip[p.File] {
			all = append(all, p.Downs(false)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Record.Denied)) {
		d := r.Record.Denied[key]
		if _, pinned := r.Record.Overrides[d.PodManifest]; pinned && !d.ByHand && !d.Past && !skip[d.PodManifest] {
			all = append(all, status.Reason{
				Kind: status.KindRolledBack, PodManifest: d.PodManifest, Tag: d.Name, Since: d.At,
				Text: fmt.Sprintf("%s: %s was rolled back: %s", d.PodManifest, d.Name, d.Reason),
			})
		}
	}
	return all
}

// missingTag describes a missing tag. Only a tag that is known to have existed is gone.
func (r *Report) missingTag(q release.Question, wasThere bool) (status.Kind, string) {
	if q.Convert && r.Policy.RuleFor(q.Repository).Follow == q.Tag {
		return status.KindTagNotFound, "the registry does not have the tag that the configuration follows (follow: " +
			q.Tag + ")"
	}
	if !wasThere {
		return status.KindTagNotFound, "the registry does not have this image, and the agent has never seen it there"
	}
	return status.KindTagGone, "the registry no longer has the followed tag"
}

// catalogStatus returns the status of the node's catalog; nil if it has none.
func (r *Report) catalogStatus() *catalog.Status {
	out := r.Catalog.Status(r.Now())
	if out != nil {
		s := r.Record.Sources[out.Catalog]
		out.LastSuccess, out.RetryAt = when(s.LastSuccess), when(s.RetryAt)
		out.Failures, out.Error, out.Cause = s.Failures, s.Error, s.Cause
	}
	return out
}

// refusedCatalog returns a reason of the state failed if a newer catalog must not be used.
func (r *Report) refusedCatalog() []status.Reason {
	s := r.Record.Sources[r.Catalog.Catalog]
	if r.Catalog.Catalog == "" || !s.Refused || s.Failures == 0 {
		return nil
	}
	return []status.Reason{{
		Kind: status.KindCatalog, Image: r.Catalog.Catalog, Host: s.Host, HTTPStatus: s.HTTPStatus,
		ErrorKind: status.ErrorCatalog, Since: s.LastSuccess, RetryAt: s.RetryAt, Text: s.Error,
	}}
}

// expiredCatalog returns a reason of the state stale if the catalog has expired.
func (r *Report) expiredCatalog() []status.Reason {
	l := r.Catalog
	if !l.IsExpired(r.Now()) || r.Policy.Catalog.IgnoreExpiry {
		return nil
	}
	return []status.Reason{{
		Kind: status.KindCatalog, Image: l.Catalog, Since: l.Expires.UTC(),
		Text: fmt.Sprintf("%s version %d expired at %s", l.Catalog, l.Version, l.Expires.UTC().Format(time.RFC3339)),
	}}
}

// withdrawn returns the running releases that the catalog has withdrawn.
func (r *Report) withdrawn(pl plan.Plan) []status.Reason {
	var out []status.Reason
	pl.Images(func(file string, i plan.ImagePlan) {
		is, listed := r.Catalog.Find(i.Offer.Repository, i.Running.Digest)
		if !listed || is.Withdrawn == nil {
			return
		}
		out = append(out, status.Reason{
			Kind: status.KindWithdrawn, PodManifest: file, Container: i.Want.Image.Container, Image: i.Offer.Repository,
			Tag: is.Tag, Digest: is.Digest, Since: is.Withdrawn.At.UTC(),
			Text: fmt.Sprintf("%s: %s is running but was withdrawn: %s", file, is.Tag, catalog.WithdrawalOf(is.Withdrawn)),
		})
	})
	return status.Sorted(out)
}

// addListed adds the catalog's data about an image's release.
func (r *Report) addListed(s *status.ImageStatus, i plan.ImagePlan) {
	if is, listed := r.Catalog.Find(s.Image, i.Running.Digest); listed {
		s.Withdrawn = catalog.WithdrawalOf(is.Withdrawn)
	}
	if is, listed := r.Catalog.Find(s.Image, i.Target.Digest); listed && i.Change != "" {
		s.Set = is.Set
		if is.IsPaused() && !r.Policy.Auto { // in mode auto, a hold says it
			s.Notes = append(s.Notes, "the publisher paused the rollout of "+is.Tag)
		}
		if !is.IsPaused() {
			s.RolloutAt = r.Policy.Catalog.RolloutTime(is).UTC()
		}
	}
	s.Bound = i.Bound
}

// lockStatus returns the status of the lock; nil if none is configured, or if the record is not loaded.
func (r *Report) lockStatus() *fleet.LockStatus {
	if !r.Loaded {
		return nil
	}
	return r.Record.LockStatus(r.Policy.Lock)
}

// lockFailures returns the reasons of the state failed if the fleet waits for this node.
func (r *Report) lockFailures() []status.Reason {
	if r.Policy.Lock.Pods == "" {
		return nil
	}
	var out []status.Reason
	if l := r.Record.Lock; l.IsStuck() {
		out = append(out, status.Reason{
			Kind: status.KindUnlock, Host: l.Host, HTTPStatus: l.Status, Since: l.Since, RetryAt: l.RetryAt,
			Text: "the fleet lock cannot be released, so no other node can continue: " + l.Error,
		})
	}
	for _, file := range r.Record.FailedUnderLock() {
		out = append(out, status.Reason{
			Kind: status.KindLock, PodManifest: file, Since: r.Record.Lock.Since,
			Text: file + ": the node keeps the fleet lock until the pod is healthy, so no other node continues",
		})
	}
	return out
}

// isAwaitedLock reports whether the plan holds a pod for the lock, so that the error of the last attempt adds nothing.
func isAwaitedLock(pl plan.Plan, file string) bool {
	return slices.ContainsFunc(pl.Pods, func(p plan.PodPlan) bool {
		return p.File == file && slices.ContainsFunc(p.Waits, func(h status.Hold) bool { return h.Name == status.HoldLock })
	})
}

// localRegistryLost returns the reasons of a node whose local registry is enabled but not asked: its pods need the
// registry, or start releases without an approval.
func localRegistryLost(own *localregistry.Status) []status.Reason {
	if own == nil {
		return nil
	}
	var out []status.Reason
	for _, l := range own.Lost {
		out = append(out, status.Reason{
			Kind: status.KindLocalRegistry, Host: l.Registry,
			Text: fmt.Sprintf("local registry: enabled for %s as %s, but %s", l.Registry, l.Wanted, l.Reason),
		})
	}
	if own.WantedError != "" {
		out = append(out, status.Reason{
			Kind: status.KindLocalRegistry,
			Text: "local registry: cannot tell which registries it was enabled for: " + own.WantedError,
		})
	}
	return out
}
