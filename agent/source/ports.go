// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Source is where releases are learnt.
type Source interface {
	// Resolve asks what a tag names now: one HEAD request where the host allows
	// it. A missing tag is ErrNotFound.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
	// Tags lists the tags of a repository, unsorted, bounded in number.
	Tags(ctx context.Context, repository string) ([]string, error)
	// Describe fetches what a digest is, for the node's platform: ErrPlatform
	// where there is none, ErrNotFound where the digest has vanished.
	Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error)
}

// TagResolver is the part of a Source that an apply needs.
type TagResolver interface {
	// Resolve asks what a tag names now. See Source.
	Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error)
}

// FailureMeter counts polls without an answer.
type FailureMeter interface {
	// Failed: a poll had no answer for a repository. host is empty where none was
	// reached. It is called once a round for a repository.
	Failed(host string, cause release.Cause)
}

// ErrPersonFirst ends a poll or a staging for a request of a person.
var ErrPersonFirst = errors.New("a person's request goes first")
