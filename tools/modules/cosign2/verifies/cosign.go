// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	ociremote "github.com/sigstore/cosign/v2/pkg/oci/remote"
	"github.com/sigstore/sigstore-go/pkg/bundle"
)

type (
	checkOpts      = cosign.CheckOpts
	registryOption = ociremote.Option
)

var (
	simpleClaims       = cosign.SimpleClaimVerifier
	subjectClaims      = cosign.IntotoSubjectClaimVerifier
	verifySignatures   = cosign.VerifyImageSignatures
	verifyAttestations = cosign.VerifyImageAttestations
	verifyBundle       = cosign.VerifyNewBundle
	withRemoteOptions  = ociremote.WithRemoteOptions
)

func bundlesOf(ctx context.Context, image name.Reference, o *checkOpts) ([]*bundle.Bundle, error) {
	all, _, err := cosign.GetBundles(ctx, image, o)
	return all, err
}
