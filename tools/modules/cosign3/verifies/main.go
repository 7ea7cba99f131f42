// SPDX-License-Identifier: Apache-2.0

// Command verifies verifies images with cosign's own code. The tests in e2e/neighbours compare the agent with it. It
// answers each line of standard input, a JSON request, with a line of JSON. The other file has the names of one version
// of cosign.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/kubic-project/image-update-agent/tools/modules/verifies"
)

func main() { verifies.Serve(ways) }

// image is an image to verify.
type image struct {
	ref      name.Reference
	manifest []byte
	options  checkOpts
}

// ways verifies an image in each way of `cosign verify --key --insecure-ignore-tlog`, and of `verify-blob`.
func ways(ctx context.Context, from *verifies.Registry, where, key string) (map[string]error, error) {
	ref, err := name.NewDigest(where)
	if err != nil {
		return nil, err
	}
	loaded, err := verifiersOf(key)
	if err != nil {
		return nil, err
	}
	puller, err := remote.NewPuller(remote.WithTransport(from)) // detects the registry's kind once
	if err != nil {
		return nil, err
	}
	tried := map[string]error{}
	for _, v := range loaded {
		i := image{ref, from.Manifests[ref.DigestStr()].Body, checkOpts{
			SigVerifier: v, IgnoreTlog: true, IgnoreSCT: true, Offline: true, MaxWorkers: 1,
			RegistryClientOpts: []registryOption{withRemoteOptions(remote.Reuse(puller))},
		}}
		for way, verify := range map[string]func(context.Context) error{
			verifies.Simple: i.simple, verifies.Referrers: i.referrers, verifies.Bundle: i.bundle, verifies.Message: i.message,
		} {
			err := verify(ctx)
			if before, again := tried[way]; !again || before != nil {
				tried[way] = err
			}
		}
	}
	return tried, nil
}

// verifiersOf returns cosign's verifiers for a key: with SHA-256, and with cosign's default for signing if that
// differs.
func verifiersOf(key string) ([]signature.Verifier, error) {
	public, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(key))
	if err != nil {
		return nil, err
	}
	sha256, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	switch k := public.(type) {
	case *rsa.PublicKey:
		return []signature.Verifier{sha256}, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return []signature.Verifier{sha256}, nil
		}
	}
	other, err := signature.LoadDefaultVerifier(public, options.WithED25519ph())
	return []signature.Verifier{sha256, other}, err
}

func (i image) simple(ctx context.Context) error {
	o := i.options
	o.ClaimVerifier = simpleClaims
	_, _, err := verifySignatures(ctx, i.ref, &o)
	return err
}

// referrers does not try a tag: with NewBundleFormat cosign does not either, and returns an error.
func (i image) referrers(ctx context.Context) error {
	o := i.options
	o.ExperimentalOCI11, o.NewBundleFormat, o.ClaimVerifier = true, true, simpleClaims
	_, _, err := verifySignatures(ctx, i.ref, &o)
	return err
}

func (i image) bundle(ctx context.Context) error {
	o := i.options
	o.NewBundleFormat, o.TrustedMaterial = true, &root.BaseTrustedMaterial{}
	o.ClaimVerifier = subjectClaims
	_, _, err := verifyAttestations(ctx, i.ref, &o)
	return err
}

// message verifies the bundles that sign the manifest's bytes.
func (i image) message(ctx context.Context) error {
	o := i.options
	o.NewBundleFormat, o.TrustedMaterial = true, &root.BaseTrustedMaterial{}
	bundles, err := bundlesOf(ctx, i.ref, &o)
	if err != nil {
		return err
	}
	problem := errors.New("no signature of a message")
	for n, b := range bundles {
		if b.GetMessageSignature() == nil {
			continue
		}
		_, err := verifyBundle(ctx, &o, verify.WithArtifact(bytes.NewReader(i.manifest)), b)
		if err == nil {
			return nil
		}
		problem = fmt.Errorf("bundle %d: %w", n, err)
	}
	return problem
}
