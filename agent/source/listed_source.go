// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

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
	is, ok := s.listing.Newest(ref, s.scheme, func(r catalog.Listed) bool {
		return r.IsOffered() && s.missing[release.Key(ref.Repository, r.Digest)] == nil
	})
	if !ok {
		is, ok = s.listing.Newest(ref, s.scheme, func(catalog.Listed) bool { return true })
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
