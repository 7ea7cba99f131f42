// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"os"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
)

func curve() elliptic.Curve { return elliptic.P256() }

// sign signs a file as openssl does.
func sign(t *testing.T, private []byte, file string) []byte {
	t.Helper()
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(private, nil)
	require.NoError(t, err)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	sig, err := signer.SignMessage(bytes.NewReader(text))
	require.NoError(t, err)
	return sig
}
