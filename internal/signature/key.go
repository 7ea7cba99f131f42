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

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
)

// key is a public key with the ways in which it signs.
type key struct {
	fingerprint string
	kind        string // for people
	ways        []signature.Verifier
}

// newKey reads a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
func newKey(der []byte) (key, error) {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return key{}, err
	}
	ways, err := waysOf(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	return key{fingerprint: "sha256:" + hex.EncodeToString(sum[:]), kind: kindOf(public), ways: ways}, nil
}

// waysOf gives the verifiers for a key: sigstore's default for its kind (RSA of
// 2048, 3072 or 4096 bits with PKCS #1 v1.5 and SHA-256, never PSS; ECDSA with
// the hash of its curve's length; Ed25519), and what cosign has signed with
// beside that: ECDSA of any curve with SHA-256, Ed25519ph for its logs.
func waysOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	usual, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kindOf(public), err)
	}
	ways := []signature.Verifier{usual}
	var other signature.Verifier
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return ways, nil
		}
		other, err = signature.LoadECDSAVerifier(k, crypto.SHA256)
	case ed25519.PublicKey:
		other, err = signature.LoadED25519phVerifier(k)
	default:
		return ways, nil
	}
	return append(ways, other), err
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

// ring are the keys of which any may have signed.
type ring []key

var errNoKeyFits = errors.New("made with none of the keys, or altered")

// signed tells which key has signed a message.
func (r ring) signed(message, sig []byte) (key, error) {
	for _, k := range r {
		for _, way := range k.ways {
			if way.VerifySignature(bytes.NewReader(sig), bytes.NewReader(message)) == nil {
				return k, nil
			}
		}
	}
	return key{}, errNoKeyFits
}

// enveloped tells which key has signed a DSSE envelope of a payload type, and
// gives the payload that was verified.
func (r ring) enveloped(payloadType string, payload, sig []byte) (key, []byte, error) {
	// Encoded anew: the library also reads what is no strict base64.
	envelope, err := json.Marshal(map[string]any{
		"payloadType": payloadType,
		"payload":     base64.StdEncoding.EncodeToString(payload),
		"signatures":  []map[string]string{{"sig": base64.StdEncoding.EncodeToString(sig)}},
	})
	if err != nil {
		return key{}, nil, err
	}
	for _, k := range r {
		for _, way := range k.ways {
			var verified []byte
			v := dsse.WrapVerifier(way, dsse.WithExpectedPayloadType(payloadType), dsse.WithDecodedPayload(&verified))
			if v.VerifySignature(bytes.NewReader(envelope), nil) == nil {
				return k, verified, nil
			}
		}
	}
	return key{}, nil, errNoKeyFits
}

// decode reads base64 in one way only: Go's own reading forgives bits in the
// padding and line ends.
func decode(encoded string, limit int) ([]byte, error) {
	if len(encoded) > limit {
		return nil, fmt.Errorf("too large: %d characters, at most %d", len(encoded), limit)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(encoded) {
		return nil, errors.New("no base64")
	}
	return data, nil
}
