// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Releases verifies releases. It looks for their signatures where the releases come from. It
// implements stage.Verifier.
type Releases struct {
	Verifier *Verifier
	From     Fetcher
}

// Verify answers as stage.Verifier.
func (r Releases) Verify(ctx context.Context, rel release.Release) (string, error) {
	verdict, err := r.Verifier.Verify(ctx, r.From, rel.Repository, rel.Digest, rel.Manifest)
	return verdict.Key, err
}

// Keys answers as stage.Verifier.
func (r Releases) Keys(ctx context.Context) ([]string, error) { return r.Verifier.Keys(ctx) }
