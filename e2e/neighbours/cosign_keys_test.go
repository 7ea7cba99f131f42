// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cosignKeys are signers by name. Neither the agent nor cosign knows the stranger's key.
type cosignKeys map[string]crypto.Signer

// known are the names of the keys that the test verifies with.
var known = []string{"p256", "other", "p384", "rsa", "ed25519"}

// newCosignKeys returns the same keys in each run, so that the record of cosign's answers is about them.
func newCosignKeys(t *testing.T) cosignKeys {
	t.Helper()
	keys := cosignKeys{}
	for name, curve := range map[string]elliptic.Curve{
		"p256": elliptic.P256(), "other": elliptic.P256(), "stranger": elliptic.P256(), "p384": elliptic.P384(),
	} {
		size := (curve.Params().BitSize + 7) / 8
		k, err := ecdsa.ParseRawPrivateKey(curve, append([]byte{0}, bytesOf(name, size-1)...))
		require.NoError(t, err)
		keys[name] = k
	}
	keys["rsa"], keys["ed25519"] = rsaKey(t), ed25519.NewKeyFromSeed(bytesOf("ed25519", ed25519.SeedSize))
	return keys
}

// bytesOf returns up to 64 bytes that belong to a name.
func bytesOf(name string, size int) []byte {
	sum := sha512.Sum512([]byte(name))
	return sum[:size]
}

// rsaKey returns a key of 2048 bits with the first primes behind two fixed numbers.
func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	one, e := big.NewInt(1), big.NewInt(65537)
	var primes []*big.Int
	product, order := big.NewInt(1), big.NewInt(1)
	for _, name := range []string{"p", "q"} {
		p := new(big.Int).SetBytes(append(bytesOf(name, 64), bytesOf(name+name, 64)...))
		p.SetBit(p, 1023, 1).SetBit(p, 1022, 1).SetBit(p, 0, 1)
		for !p.ProbablyPrime(20) {
			p.Add(p, big.NewInt(2))
		}
		primes = append(primes, p)
		product.Mul(product, p)
		order.Mul(order, new(big.Int).Sub(p, one))
	}
	k := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: product, E: int(e.Int64())}, D: new(big.Int).ModInverse(e, order), Primes: primes,
	}
	k.Precompute()
	require.NoError(t, k.Validate())
	return k
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
	// Without a source of chance, ECDSA is deterministic (RFC 6979); PSS takes its salt from here.
	var salt io.Reader
	if name == "rsa" {
		salt = strings.NewReader(strings.Repeat("salt", 8))
	}
	sig, err := crypto.SignMessage(k[name], salt, message, options)
	require.NoError(t, err)
	return sig
}
