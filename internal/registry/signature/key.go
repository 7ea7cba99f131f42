// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
)

// key is a public key with verifiers for its algorithms.
type key struct {
	fingerprint string
	kind        string // for people
	verifiers   []signature.Verifier
}

// newKey parses a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
func newKey(der []byte) (key, error) {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return key{}, err
	}
	verifiers, err := verifiersOf(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	return key{fingerprint: "sha256:" + hex.EncodeToString(sum[:]), kind: kindOf(public), verifiers: verifiers}, nil
}

// verifiersOf returns sigstore's default verifier for a key (RSA of 2048, 3072 or 4096 bits with PKCS #1 v1.5 and
// SHA-256, never PSS; ECDSA with the hash of its curve's length; Ed25519), and verifiers for cosign's other algorithms:
// ECDSA of any curve with SHA-256, and Ed25519ph for its logs.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	standard, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kindOf(public), err)
	}
	verifiers := []signature.Verifier{standard}
	var other signature.Verifier
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return verifiers, nil
		}
		other, err = signature.LoadECDSAVerifier(k, crypto.SHA256)
	case ed25519.PublicKey:
		other, err = signature.LoadED25519phVerifier(k)
	default:
		return verifiers, nil
	}
	return append(verifiers, other), err
}

func kindOf(public crypto.PublicKey) string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", public)
}

// ring are the trusted keys.
type ring []key

// fingerprints returns the fingerprints of the different keys, sorted.
func (r ring) fingerprints() []string {
	var out []string
	for _, k := range r {
		out = append(out, k.fingerprint)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var errNoKeyFits = errors.New("made with another key, or altered")

// verify returns the key that signed a message.
func (r ring) verify(message, sig []byte) (key, error) {
	for _, k := range r {
		for _, v := range k.verifiers {
			if v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(message)) == nil {
				return k, nil
			}
		}
	}
	return key{}, errNoKeyFits
}

// verifyEnvelope returns the key that signed a DSSE envelope of a payload type, and the
// verified payload.
func (r ring) verifyEnvelope(payloadType string, payload, sig []byte) (key, []byte, error) {
	// The envelope is encoded again, because the library accepts non-strict base64.
	envelope, err := json.Marshal(map[string]any{
		"payloadType": payloadType,
		"payload":     base64.StdEncoding.EncodeToString(payload),
		"signatures":  []map[string]string{{"sig": base64.StdEncoding.EncodeToString(sig)}},
	})
	if err != nil {
		return key{}, nil, err
	}
	for _, k := range r {
		for _, v := range k.verifiers {
			var verified []byte
			v := dsse.WrapVerifier(v, dsse.WithExpectedPayloadType(payloadType), dsse.WithDecodedPayload(&verified))
			if v.VerifySignature(bytes.NewReader(envelope), nil) == nil {
				return k, verified, nil
			}
		}
	}
	return key{}, nil, errNoKeyFits
}

// decode decodes strict base64: Go's decoder accepts bits in the padding and line ends.
func decode(encoded string, limit int) ([]byte, error) {
	if len(encoded) > limit {
		return nil, fmt.Errorf("too large: %d characters, at most %d", len(encoded), limit)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(encoded) {
		return nil, errors.New("not base64")
	}
	return data, nil
}
