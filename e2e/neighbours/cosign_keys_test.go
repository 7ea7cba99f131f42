// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha512" // SHA-384
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/require"
)

// cosignKeys are signers by name. Neither the agent nor cosign knows the stranger's key.
type cosignKeys map[string]crypto.Signer

// known are the names of the keys that the test verifies with.
var known = []string{"p256", "other", "p384", "rsa", "ed25519"}

func newCosignKeys(t *testing.T) cosignKeys {
	t.Helper()
	keys := cosignKeys{}
	for name, curve := range map[string]elliptic.Curve{
		"p256": elliptic.P256(), "other": elliptic.P256(), "stranger": elliptic.P256(), "p384": elliptic.P384(),
	} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		keys[name] = k
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, e, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys["rsa"], keys["ed25519"] = r, e
	return keys
}

// public returns a public key in PEM.
func (k cosignKeys) public(t *testing.T, name string) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k[name].Public())
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign signs with the key's default algorithm or with another one: SHA-256 with P-384 and Ed25519ph, which cosign
// supports, SHA-512 with P-256 and PSS, which it does not.
func (k cosignKeys) sign(t *testing.T, name string, message []byte, another bool) []byte {
	t.Helper()
	hash := map[string]crypto.Hash{"p384": crypto.SHA384, "ed25519": 0}[name]
	if name != "p384" && name != "ed25519" {
		hash = crypto.SHA256
	}
	options := crypto.SignerOpts(hash)
	if another {
		switch name {
		case "p384":
			options = crypto.SHA256
		case "ed25519":
			options = &ed25519.Options{Hash: crypto.SHA512}
		case "rsa":
			options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		default:
			options = crypto.SHA512
		}
	}
	sig, err := crypto.SignMessage(k[name], rand.Reader, message, options)
	require.NoError(t, err)
	return sig
}
