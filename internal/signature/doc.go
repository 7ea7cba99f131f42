// SPDX-License-Identifier: Apache-2.0

// Package signature proves that an image was signed with a key that lies on this
// node. It verifies cosign's signatures by public keys alone: no certificates, no
// transparency log, no trust roots from the network.
//
// # Words
//
// A signature is over a digest: that of an index, or of the image for one
// platform. Its identity is the repository that the signer published the image
// as. A key is a PEM file with a public key; its fingerprint is the SHA-256 of
// its SubjectPublicKeyInfo in DER, as
// `openssl pkey -pubin -outform DER | sha256sum` prints it. There are two formats:
//
//   - Simple signing: the image sha256-HEX.sig in the same repository, of which
//     each layer is a payload with its signature as an annotation
//     (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md).
//     SUSE signs so, and cosign did before its third version.
//   - Bundle: an artifact that refers to the digest (OCI distribution
//     specification 1.1, "Listing Referrers"), found by the referrers API or by
//     the tag sha256-HEX, with a sigstore bundle of version 0.3: an in-toto
//     statement in a DSSE envelope, or a signature over the manifest itself.
//
// # Promises
//
//   - A signature counts if one of the keys made it over exactly the bytes that
//     came; only after that the bytes are read for the digest, the kind and the
//     identity. What could be read in two ways is refused.
//   - The identity is the repository that the pod manifest names, also where a
//     mirror serves it; or one that the rewrites of the configuration make that of.
//     cosign's bundles have none: there, a repository stands for whatever its
//     publisher's keys have signed.
//   - An attestation (SBOM, provenance, scan) is no signature: it says what an
//     image is, not that it may run.
//   - A signature says nothing of the time: an old image stays signed. Lower
//     versions are refused elsewhere.
//   - The files of keys are looked at before each verification and read again
//     when they changed; one that is broken, or that others than root may write,
//     is warned of and does not count.
//   - All that is read is bounded in size and count (limits.go).
package signature
