// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Releases verifies releases with signatures from the releases' source. It implements stage.Verifier.
type Releases struct {
	Verifier *Verifier
	From     Fetcher
}

// Verify implements stage.Verifier.
func (r Releases) Verify(ctx context.Context, rel release.Release) (string, error) {
	keys, err := r.Signers(ctx, rel)
	if err != nil {
		return "", err
	}
	return keys[0], nil
}

// Signers implements channel.Verifier.
func (r Releases) Signers(ctx context.Context, rel release.Release) ([]string, error) {
	verdict, err := r.Verifier.Verify(ctx, r.From, rel.Repository, rel.Digest, rel.Manifest)
	return verdict.Keys, err
}

// Trusts implements channel.Verifier.
func (r Releases) Trusts(ctx context.Context, keys []string) (bool, error) {
	return r.Verifier.Trusts(ctx, keys)
}

// Keys implements stage.Verifier.
func (r Releases) Keys(ctx context.Context) ([]string, error) { return r.Verifier.Keys(ctx) }
