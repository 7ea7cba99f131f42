// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// makeCertificates makes a CA, and a certificate of it for 127.0.0.1 and localhost that became valid two days ago. ca
// is the file of the CA's certificate.
func (n *Node) makeCertificates(dir, name string, until time.Time) (config *tls.Config, ca string) {
	n.tb.Helper()
	fail := func(err error) {
		if err != nil {
			n.tb.Fatalf("node: %s: certificates: %v", name, err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test node CA"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(23 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: authority.NotBefore, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	fail(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), caKey)
	fail(err)
	ca = filepath.Join(dir, "ca.crt")
	fail(os.MkdirAll(dir, 0o755))
	fail(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}), 0o644))
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
	}, ca
}
