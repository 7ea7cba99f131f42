// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Certificate creates a CA and a certificate for 127.0.0.1, for 0.0.0.0, which Linux treats the same and for which a
// proxy is used, and for names below example.com; edit may change it.
func Certificate(t testing.TB, edit ...func(*x509.Certificate)) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	caKey, caCert := issue(t, nil, nil)
	leafKey, leaf := issue(t, caCert, caKey, edit...)
	der, err := x509.MarshalECPrivateKey(leafKey)
	require.NoError(t, err)
	return writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", caCert.Raw),
		writePEM(t, filepath.Join(dir, "leaf.crt"), "CERTIFICATE", leaf.Raw),
		writePEM(t, filepath.Join(dir, "leaf.key"), "EC PRIVATE KEY", der)
}

// issue creates a key and a certificate signed by parent; nil: a CA.
func issue(
	t testing.TB, parent *x509.Certificate, signer *ecdsa.PrivateKey, edit ...func(*x509.Certificate),
) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "mirror"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero},
		DNSNames:              []string{"*.example.com"},
		BasicConstraintsValid: true,
		IsCA:                  parent == nil,
	}
	for _, e := range edit {
		e(template)
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return key, cert
}

// writePEM writes a PEM file and returns its path.
func writePEM(t testing.TB, path, kind string, der []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
