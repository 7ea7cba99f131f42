// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// publicKey writes a new key, and gives its fingerprint.
func publicKey(t *testing.T, path string) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func keysOf(t *testing.T, s config.Settings) []Finding {
	t.Helper()
	return checkKeys(s.Repositories, s.SignatureKeys)
}

func TestCheckKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wanting := func(signatures ...string) config.Settings {
		s := config.Settings{SignatureKeys: []string{dir}}
		for _, wanted := range signatures {
			s.Repositories = append(s.Repositories, config.Repository{Match: "*", Signatures: wanted})
		}
		return s
	}
	for name, signatures := range map[string][]string{"no policy": {}, "none says": {""}, "off": {"off"}} {
		all := keysOf(t, wanting(signatures...))
		require.Len(t, all, 1, name)
		found(t, all[0], Skipped, "no repository requires signatures")
	}
	for signatures, verdict := range map[string]string{"require": Fail, "warn": Warn} {
		all := keysOf(t, wanting("off", signatures, "warn"))
		require.Len(t, all, 1)
		found(t, all[0], verdict, "no valid *.pem file in "+dir, "set signatureKeys")
	}

	a, b := filepath.Join(dir, "a.pem"), filepath.Join(dir, "b.pem")
	first, second := publicKey(t, a), publicKey(t, b)
	all := keysOf(t, wanting("require"))
	require.Len(t, all, 1)
	found(t, all[0], OK, a, first, b, second)

	elsewhere := wanting("require")
	elsewhere.SignatureKeys = append(elsewhere.SignatureKeys, filepath.Join(dir, "none"))
	all = keysOf(t, elsewhere)
	require.Len(t, all, 2)
	found(t, all[0], Warn, filepath.Join(dir, "none"), "correct signatureKeys")
	found(t, all[1], OK, first)
	elsewhere.SignatureKeys = []string{filepath.Join(dir, "none")}
	all = keysOf(t, elsewhere)
	require.Len(t, all, 1, "one thing is wrong")
	found(t, all[0], Fail, filepath.Join(dir, "none"), "put the publisher's public key there")

	require.NoError(t, os.WriteFile(b, []byte("nonsense"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c.pem"), 0o755), "root may read any file, and no directory")
	all = keysOf(t, wanting("warn", "require"))
	require.Len(t, all, 3, "each broken file is named, and the others count")
	found(t, all[0], Warn, b, "no PEM", "correct or remove the file")
	found(t, all[1], Warn, filepath.Join(dir, "c.pem"), "not a regular file")
	found(t, all[2], OK, first)
	assert.NotContains(t, all[2].Detail, second)

	require.NoError(t, os.Remove(a))
	all = keysOf(t, wanting("require"))
	require.Len(t, all, 3)
	found(t, all[2], Fail, "the agent stages no image that requires a signature")
}

func TestCheckCatalogKeys(t *testing.T) {
	t.Parallel()
	with, more, without := t.TempDir(), t.TempDir(), t.TempDir()
	publicKey(t, filepath.Join(more, "anna.pem"))
	publicKey(t, filepath.Join(with, "prod.pem"))
	assert.Empty(t, checkCatalogKeys(config.Catalog{}, nil))
	for name, c := range map[string]struct {
		catalog config.Catalog
		others  []string
		verdict string
		words   string
	}{
		"its own":    {config.Catalog{Signatures: "require", Keys: []string{with}}, []string{without}, OK, "prod.pem"},
		"the others": {config.Catalog{Signatures: "require"}, []string{with}, OK, "prod.pem"},
		"none":       {config.Catalog{Signatures: "require", Keys: []string{without}}, []string{with}, Fail, "no valid *.pem"},
		"one of two": {
			config.Catalog{Signatures: "require", RequiredKeys: 2}, []string{with, with}, Fail, "too few usable public keys: 1 in",
		},
		"two of two": {
			config.Catalog{Signatures: "require", RequiredKeys: 2}, []string{with, more}, OK, "2 of them must have signed",
		},
		"not checked": {config.Catalog{Signatures: "off"}, nil, Warn, "not verified"},
	} {
		c.catalog.Repository = "registry.example.com/catalog"
		all := checkCatalogKeys(c.catalog, c.others)
		require.Len(t, all, 1, name)
		found(t, all[0], c.verdict, c.words)
	}
}
