// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Source publishes releases: registries, or an OCI layout.
type Source interface {
	// Resolve returns the current digest of a tag, with one HEAD request if the host supports it. A missing tag is
	// ErrNotFound.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Tags lists the tags of a repository, unsorted, limited in number.
	Tags(ctx context.Context, repository string) ([]string, error)
	// Describe fetches the build of a digest for the node's platform: ErrPlatform if there is none, ErrNotFound if the
	// digest is gone.
	Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error)
}

// Registry is the part of a Source that an apply needs.
type Registry interface {
	// Resolve returns the current digest of a tag. See Source.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Describe fetches the build of a digest. See Source.
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
