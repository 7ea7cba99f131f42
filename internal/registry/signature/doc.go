// SPDX-License-Identifier: Apache-2.0

// Package signature verifies cosign's signatures of images with public keys on this node: no certificates, no
// transparency log, no trust roots from the network.
//
// # Words
//
// A signature covers a digest: of an index, or of the image for one platform. Its identity is the repository under
// which the signer published the image. A key is a PEM file with a public key; its fingerprint is the SHA-256 of its
// SubjectPublicKeyInfo in DER, as `openssl pkey -pubin -outform DER | sha256sum` prints it. There are two formats:
//
//   - Simple signing: the image sha256-HEX.sig in the same repository, in which
//     each layer is a payload with its signature as an annotation
//     (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md).
//     SUSE uses it, and cosign did before version 3. With
//     --registry-referrers-mode=oci-1-1 cosign 2 made this image an artifact that
//     refers to the digest, as a bundle does.
//   - Bundle: an artifact that refers to the digest (OCI distribution
//     specification 1.1, "Listing Referrers"), found by the referrers API or by
//     the tag sha256-HEX, with a sigstore bundle of version 0.3: an in-toto
//     statement in a DSSE envelope, or a signature over the manifest itself.
//
// # Promises
//
//   - A signature is valid if one of the keys signed exactly the received bytes. Only
//     then are the bytes decoded, and digest, kind and identity compared. Ambiguous JSON
//     is rejected.
//   - The identity must be the repository in the pod manifest, also for a mirror, or one
//     that the configured rewrites map to it. cosign's bundles have no identity: there,
//     the publisher's keys may sign any repository.
//   - An attestation (SBOM, provenance, scan) is not a signature.
//   - Signatures of old images stay valid: other packages refuse lower versions.
//   - Changed key files are read before each verification. A key that is broken, or
//     that users other than root may write, is logged and ignored.
//   - Size and count of all input are limited (limits.go).
//
// Why sigstore's pkg/signature and not sigstore-go: keys are on the node, and TUF, Rekor, Fulcio and timestamps would
// add 4 MB and 55 modules. An unknown version of the bundle does not count until a person has read it. Signatures are
// asked for in the order tag sha256-HEX.sig, referrers API, tag sha256-HEX, for the index, then for the image, until
// one is valid. A bundle names no repository: a mirror could serve one signed image as another of the same publisher,
// unless their keys differ.
package signature
