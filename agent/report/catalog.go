// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
			Text: fmt.Sprintf("%s: %s is running but was withdrawn: %s", file, is.Tag, is.Withdrawn),
		})
	})
	return status.Sorted(out)
}

// addListed adds the catalog's data about an image's release.
func (r *Report) addListed(s *status.ImageStatus, i plan.ImagePlan) {
	if is, listed := r.Catalog.Find(s.Image, i.Running.Digest); listed {
		s.Withdrawn = is.Withdrawn
	}
	if is, listed := r.Catalog.Find(s.Image, i.Target.Digest); listed && i.Change != "" {
		s.Set = is.Set
		if is.Rollout.Paused && !r.Policy.Auto { // in mode auto, a hold says it
			s.Notes = append(s.Notes, "the publisher paused the rollout of "+is.Tag)
		}
		if !is.Rollout.Paused && (is.Rollout.Spread > 0 || !is.Rollout.From.IsZero()) {
			s.RolloutAt = r.Policy.Catalog.RolloutTime(is).UTC()
		}
	}
	s.Bound = i.Bound
}
