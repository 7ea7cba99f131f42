// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
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

// A publisher signs no version that it would itself refuse: nodes would refuse it, too, and nobody could build on it.
func TestRequireIsAlsoForTheNextVersion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, name := range []string{one, two} {
		_, errs, code := run(t, "keygen", name)
		require.Zero(t, code, errs)
	}
	both := []string{"--require", "2", "--trust", one + ".pub", "--trust", two + ".pub"}
	s.does("init", "prod", "--key", one+".key", "--key", two+".key")
	for _, keys := range [][]string{{"--key", one + ".key"}, {"--key", one + ".key", "--key", one + ".key"}} {
		for _, verb := range [][]string{{"init", "new"}, {"refresh", "prod", "--expires", "9d"}} {
			_, errs, code := s.run(slices.Concat(verb, both, keys)...)
			assert.Equal(t, exitUsage, code, verb)
			assert.Contains(t, errs, "require: too few keys sign the next version: 1, want 2: use --key for each, or --out DIR\n")
		}
	}
	out := s.does(append([]string{"list"}, both...)...)
	assert.Regexp(t, `(?m)^prod +1 `, out, "nothing was published")
	assert.NotContains(t, out, "new")
	s.does(slices.Concat([]string{"refresh", "prod", "--expires", "9d", "--key", one + ".key", "--key", two + ".key"}, both)...)

	signed := filepath.Join(dir, "signed")
	s.does(slices.Concat([]string{"refresh", "prod", "--expires", "8d", "--out", signed}, both)...)
	private, err := os.ReadFile(one + ".key")
	require.NoError(t, err)
	sig := filepath.Join(dir, "one.sig")
	require.NoError(t, os.WriteFile(sig, sign(t, private, filepath.Join(signed, publish.PayloadFile)), 0o600))
	_, errs, code := s.run(slices.Concat([]string{"publish", signed, "--signature", sig}, both)...)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "too few keys signed it: 1, want 2")
	assert.Contains(t, errs, "hint: use --signature FILE for each signature, and --trust FILE for each key\n")
}
