// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/signature"
)

// verifier looks for the signatures of releases where the releases come from.
type verifier struct {
	keys *signature.Verifier
	from signature.Fetcher
}

func (v verifier) Verify(ctx context.Context, r release.Release) (string, error) {
	verdict, err := v.keys.Verify(ctx, v.from, r.Repository, r.Digest, r.Manifest)
	return verdict.Key, err
}

func (v verifier) Keys(ctx context.Context) ([]string, error) { return v.keys.Keys(ctx) }
