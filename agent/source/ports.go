// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Source is what publishes releases: registries, or an OCI layout.
type Source interface {
	// Resolve returns what a tag names now, with one HEAD request where the host allows
	// it. A missing tag is ErrNotFound.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Tags lists the tags of a repository, unsorted, bounded in number.
	Tags(ctx context.Context, repository string) ([]string, error)
	// Describe fetches the build behind a digest for the node's platform: ErrPlatform if
	// there is none, ErrNotFound if the digest is gone.
	Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error)
}

// Registry is the part of a Source that an apply needs.
type Registry interface {
	// Resolve returns what a tag names now. See Source.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Describe fetches the build behind a digest. See Source.
	Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error)
}

// FailureMeter counts polls without an answer.
type FailureMeter interface {
	// Failed counts that a repository's source did not answer, at most once a round. host
	// is empty if none was reached.
	Failed(host string, cause release.Cause)
}

// ErrPersonFirst is the cause that ends the context of a poll or a staging for a person's
// request.
var ErrPersonFirst = errors.New("a person's request goes first")
